"""`caption` at the command line, and what other commands say of a captioner."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.cli_runs import Command, refuse

from minitransformer.cli.caption import verdict
from minitransformer.data.scenes import caption_tokenizer
from minitransformer.decoding import Describer
from minitransformer.grammar.captions import caption
from minitransformer.grammar.scenes import draw, draw_scene
from minitransformer.models import CaptionerConfig, GPTConfig, ModelConfig, build_model
from minitransformer.training.checkpoint import Checkpoint, save_checkpoint

SHAPE: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1}


def saved(path: Path, config: ModelConfig) -> Path:
    """A model with large weights: what it writes differs from picture to picture."""
    model, rng = build_model(config), np.random.default_rng(0)
    weights = {name: rng.standard_normal(each.shape, np.float32) for name, each in model.parameters.named.items()}
    save_checkpoint(path, Checkpoint(config.to_dict(), weights, tokenizer=caption_tokenizer().to_json()))
    return path


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "captioner", CaptionerConfig(len(caption_tokenizer()), **SHAPE))


def test_scenes_and_files_of_pictures_are_described(command: Command, captioner: Path, tmp_path: Path) -> None:
    """The picture of a scene in a file is described as the scene is, also four times as large."""
    describer, scenes = Describer.from_checkpoint(captioner), [draw_scene("test", 0, number) for number in (7, 2)]
    first, second = describer.describe([draw(scene) for scene in scenes])
    assert first != second
    status, out, _ = command("caption", captioner, "--scene", "7", "2")
    wrong = "wrong: size, colour, shape, relation"
    assert (status, out) == (0, f"scene 7\t{first}\t{wrong}\nscene 2\t{second}\t{wrong}\n")

    path, pixels = tmp_path / "scene.png", (127.5 * (draw(scenes[0]) + 1)).round()
    Image.fromarray(np.kron(pixels, np.ones((1, 4, 4))).astype(np.uint8).transpose(1, 2, 0)).save(path)
    status, out, _ = command("caption", captioner, path, "--beam", "1")
    assert (status, out) == (0, f"{path}\t{describer.describe([pixels / np.float32(127.5) - 1], beam=1)[0]}\n")


def test_a_true_caption_is_called_so_and_a_wrong_part_is_named() -> None:
    scene = draw_scene("test", 0, 1)
    text, size = caption(scene), scene.things[0].size
    assert verdict(text, scene) == "true"
    assert verdict(text.replace(size, "big" if size == "small" else "small", 1), scene) == "wrong: size"


def test_what_a_captioner_and_its_command_are_not_for(command: Command, captioner: Path, tmp_path: Path) -> None:
    gpt = saved(tmp_path / "gpt", GPTConfig(len(caption_tokenizer()), **SHAPE))
    train = ["train", "--out", tmp_path / "out"]
    for arguments, says in (
        (["caption", captioner], "name what to describe: pictures, or --scene, one of the two"),
        (["caption", captioner, "a.png", "--scene", "1"], "name what to describe"),
        (["caption", gpt, "--scene", "1"], "kind 'gpt', which describes no pictures: a captioner does"),
        (["caption", captioner, gpt], "gpt is not an image that can be read"),
        (["translate", captioner, "A dog."], "describes pictures, and does not translate: `caption` asks it"),
        (["generate", captioner, "A dog"], "does not continue texts; `caption` shows what it writes"),
        (["inside", captioner, "A dog.", "--out", tmp_path / "page.html"], "one of kind 'captioner' reads none"),
        (
            ["explore", captioner, "--out", tmp_path / "page.html", "--examples", __file__],
            "describes pictures: it has no",
        ),
        ([*train, "--from", captioner], "kind 'captioner': --from takes a GPT, BERT, T5 or Marian"),
        ([*train, "--kind", "captioner", "--text", "a.txt"], "--kind captioner reads images"),
        ([*train, "--kind", "captioner", "--target", "de"], "--kind captioner reads scenes that it draws"),
        ([*train, "--kind", "captioner", "--vocab-size", "9"], "--kind captioner reads scenes that it draws"),
        ([*train, "--kind", "captioner", "--patch-size", "5"], "patch_size is 5 and does not divide image_size, 32"),
    ):
        refuse(command, *arguments, says=says)
