"""`caption` at the command line, and what other commands say of a captioner."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.cli_runs import Command, refuse

from minitransformer.cli.caption import verdict
from minitransformer.cli.recipes import material
from minitransformer.data import BPETokenizer
from minitransformer.data.scenes import CAPTION_LANGUAGES, SceneDataset, caption_tokenizer
from minitransformer.decoding import Describer, Matcher
from minitransformer.grammar.captions import Language, caption
from minitransformer.grammar.scenes import draw, draw_scene
from minitransformer.models import CaptionerConfig, CLIPConfig, GPTConfig, ModelConfig, build_model
from minitransformer.training import TrainingSettings
from minitransformer.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

SHAPE: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1}


def saved(path: Path, config: ModelConfig, tokenizer: BPETokenizer | None = None) -> Path:
    """A model with large weights: what it writes differs from picture to picture."""
    model, rng = build_model(config), np.random.default_rng(0)
    weights = {name: rng.standard_normal(each.shape, np.float32) for name, each in model.parameters.named.items()}
    text = (tokenizer or caption_tokenizer()).to_json()
    save_checkpoint(path, Checkpoint(config.to_dict(), weights, tokenizer=text))
    return path


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "captioner", CaptionerConfig(len(caption_tokenizer()), **SHAPE))


def test_scenes_and_files_of_pictures_are_described(command: Command, captioner: Path, tmp_path: Path) -> None:
    """The picture of a scene in a file is described as the scene is, also four times as large."""
    describer, scenes = Describer.from_checkpoint(captioner), [draw_scene("test", 0, number) for number in (7, 2)]
    first, second = describer.describe([draw(scene) for scene in scenes])
    assert first != second
    status, out, _ = command("caption", captioner, "--scene", "7", "2", "--save", tmp_path / "new" / "pictures")
    wrong = "wrong: size, colour, shape, relation"
    assert (status, out) == (0, f"scene 7\t{first}\t{wrong}\nscene 2\t{second}\t{wrong}\n")

    path, pixels = tmp_path / "new" / "pictures" / "scene-7.png", (127.5 * (draw(scenes[0]) + 1)).round()
    with Image.open(path) as image:
        np.testing.assert_array_equal(np.asarray(image).transpose(2, 0, 1), pixels)
        image.resize((128, 128), Image.Resampling.NEAREST).save(path)
    status, out, _ = command("caption", captioner, path, "--beam", "1")
    assert (status, out) == (0, f"{path}\t{describer.describe([pixels / np.float32(127.5) - 1], beam=1)[0]}\n")


def test_what_is_transparent_is_grey_and_16_bits_are_refused(command: Command, captioner: Path, tmp_path: Path) -> None:
    pixels = (127.5 * (draw(draw_scene("test", 0, 7)) + 1)).round().astype(np.uint8).transpose(1, 2, 0)
    ground = (pixels == 128).all(axis=2, keepdims=True)
    rgba = np.concatenate([np.where(ground, 0, pixels), np.where(ground, 0, 255)], axis=2).astype(np.uint8)
    for name, array in (("ground", pixels), ("clear", rgba), ("deep", pixels[..., 0].astype(np.uint16) * 257)):
        Image.fromarray(array).save(tmp_path / f"{name}.png")
    processor = Describer.from_checkpoint(captioner).processor
    np.testing.assert_array_equal(processor.read(tmp_path / "clear.png"), processor.read(tmp_path / "ground.png"))
    said = "deep.png is not an image that can be read: a channel has more than 8 bits (Pillow's mode I;16)"
    refuse(command, "caption", captioner, tmp_path / "deep.png", says=said)


@pytest.mark.parametrize(
    ("picture", "says"),
    [
        (np.zeros((3, 31, 32)), r"shape \(3, 31, 32\) and dtype float64, expected \(3, 32, 32\) of finite"),
        (np.zeros((3, 32, 32), np.uint8), "dtype uint8, expected"),
        (np.full((3, 32, 32), np.nan), "expected .* of finite floating-point numbers"),
    ],
)
def test_arrays_that_are_no_pictures(captioner: Path, picture: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Describer.from_checkpoint(captioner).describe([picture])


def test_one_name_is_no_sequence_of_pictures_and_a_beam_is_at_least_one(captioner: Path) -> None:
    describer = Describer.from_checkpoint(captioner)
    with pytest.raises(TypeError, match="a sequence of pictures, not one str"):
        describer.describe("scene.png")
    with pytest.raises(ValueError, match="num_beams is 0, expected 1 or more"):
        describer.describe([np.zeros((3, 32, 32))], beam=0)


def test_a_true_caption_is_called_so_and_a_wrong_part_is_named() -> None:
    scene = draw_scene("test", 0, 1)
    text, size = caption(scene), scene.things[0].size
    assert verdict(text, scene) == "true"
    assert verdict(text.replace(size, "big" if size == "small" else "small", 1), scene) == "wrong: size"


@pytest.mark.parametrize(("target", "language"), CAPTION_LANGUAGES.items())
def test_captions_are_true_in_the_language_that_was_learned_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, language: Language
) -> None:
    """At the command line and in a validation, of a training that goes on in its language."""
    tiny = ["--d-model", "16", "--num-heads", "2", "--d-ff", "16", "--num-layers", "1", "--tokens-per-batch", "64"]
    folder, path = tmp_path / "run", tmp_path / "run" / "step-00000001.safetensors"
    assert command("train", "--kind", "captioner", "--target", target, *tiny, "--steps", "1", "--out", folder)[0] == 0
    tokenizer = caption_tokenizer(language)
    assert load_checkpoint(path).tokenizer == tokenizer.to_json()
    model = Describer.from_checkpoint(path).model
    data = material(model.config, None, TrainingSettings(), tokenizer=tokenizer)
    assert isinstance(data.valid, SceneDataset)
    scenes = [*data.valid.scenes, draw_scene("test", 0, 7)]
    for other, said in CAPTION_LANGUAGES.items():
        captions = {draw(scene).tobytes(): caption(scene, said) for scene in scenes}

        def describe(_: Describer, pictures: list[Any], beam: int, captions: dict[bytes, str] = captions) -> list[str]:
            return [captions[each.tobytes()] for each in pictures]

        monkeypatch.setattr(Describer, "describe", describe)
        assert data.figures(model, {}) == {"true_captions": 100.0 * (said == language)}
        judged = "true" if said == language else "wrong: size, colour, shape, relation"
        out = f"scene 7\t{caption(scenes[-1], said)}\t{judged}\n"
        assert command("caption", path, "--scene", "7")[:2] == (0, out)
        if said == language:
            assert command("train", "--resume", folder, "--target", other)[0] == 0
        else:
            refuse(command, "train", "--resume", folder, "--target", other, says=f"has target {target}, not {other}")


def test_a_clip_is_validated_among_different_captions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds the caption of every picture finds all, although some validation scenes have the same."""
    model = build_model(CLIPConfig(len(caption_tokenizer()), **SHAPE))
    data: Any = material(model.config, None, TrainingSettings(), tokenizer=caption_tokenizer())
    captions = {draw(scene).tobytes(): caption(scene) for scene in data.valid.scenes}
    assert len(set(captions.values())) < len(captions)

    def similarities(_: Matcher, pictures: list[Any], texts: list[str]) -> np.ndarray:
        return np.array([[float(captions[each.tobytes()] == text) for text in texts] for each in pictures])

    monkeypatch.setattr(Matcher, "similarities", similarities)
    assert data.figures(model, {}) == {"recall": 100.0}


def test_a_model_with_words_of_its_own_describes_files_and_no_scenes(command: Command, tmp_path: Path) -> None:
    tokenizer = BPETokenizer("ab", [("a", "b")])
    path = saved(tmp_path / "own", CaptionerConfig(len(tokenizer), **SHAPE), tokenizer)
    refuse(command, "caption", path, "--scene", "1", says="English or German, and the model's tokenizer is for neither")
    Image.new("RGB", (32, 32)).save(tmp_path / "grey.png")
    assert command("caption", path, tmp_path / "grey.png")[0] == 0


def test_what_a_captioner_and_its_command_are_not_for(command: Command, captioner: Path, tmp_path: Path) -> None:
    gpt = saved(tmp_path / "gpt", GPTConfig(len(caption_tokenizer()), **SHAPE))
    clip = saved(tmp_path / "clip", CLIPConfig(len(caption_tokenizer()), **SHAPE))
    mute = tmp_path / "mute"
    save_checkpoint(mute, replace(load_checkpoint(captioner), tokenizer=None))
    train = ["train", "--out", tmp_path / "out"]
    for arguments, says in (
        (["caption", captioner], "name what to describe: pictures, or --scene, one of the two"),
        (["caption", captioner, "a.png", "--scene", "1"], "name what to describe"),
        (["caption", gpt, "--scene", "1"], "kind 'gpt', which describes no pictures: a captioner does"),
        (["caption", captioner, gpt], "gpt is not an image that can be read"),
        (["caption", mute, "--scene", "1"], "mute holds no tokenizer: it can't read or write text"),
        (["translate", captioner, "A dog."], "describes pictures, and does not translate: `caption` asks it"),
        (["generate", captioner, "A dog"], "does not continue texts; `caption` shows what it writes"),
        (["inside", captioner, "A dog.", "--out", tmp_path / "page.html"], "one of kind 'captioner' is for pictures"),
        (
            ["explore", captioner, "--out", tmp_path / "page.html", "--examples", __file__],
            "describes pictures: it has no",
        ),
        ([*train, "--from", captioner], "kind 'captioner': --from takes a GPT, BERT, T5 or Marian"),
        ([*train, "--kind", "captioner", "--text", "a.txt"], "--kind captioner reads images"),
        ([*train, "--kind", "captioner", "--target", "fr"], "--kind captioner knows captions in en or de, not in fr"),
        ([*train, "--kind", "captioner", "--source", "de"], "--kind captioner reads scenes that it draws"),
        ([*train, "--kind", "vit", "--target", "de"], "--kind vit reads scikit-learn's digits"),
        ([*train, "--kind", "captioner", "--vocab-size", "9"], "--kind captioner reads scenes that it draws"),
        (
            [*train, "--kind", "clip", "--threads", "2"],
            "threads is 2, expected 1: the loss compares all pairs of a batch, so --threads 1",
        ),
        ([*train, "--kind", "clip", "--accumulate", "3"], "accumulate is 3, expected 1: the loss compares all pairs"),
        ([*train, "--kind", "clip", "--tokens-per-batch", "31"], "tokens_per_batch is 31, expected 32 or more"),
        (["embed", clip, "A dog."], "a CLIP's vectors of texts are for pictures: `Matcher` compares the two in Python"),
        ([*train, "--kind", "captioner", "--patch-size", "5"], "patch_size is 5 and does not divide image_size, 32"),
    ):
        refuse(command, *arguments, says=says)
    assert not (tmp_path / "out").exists()
