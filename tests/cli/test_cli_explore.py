"""`explore`: a page from a checkpoint, and one line where there can be none."""

import json
import sys
from pathlib import Path

import pytest
from support.cli_runs import Command, Run, refuse

from minitransformer import load_checkpoint, save_checkpoint
from minitransformer.data.scenes import caption_tokenizer
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.grammar.captions import Language, caption
from minitransformer.grammar.scenes import draw_scene
from minitransformer.models import GPT, Captioner, CaptionerConfig, GPTConfig
from minitransformer.training.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def gpt(trained: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT with the trained model's tokenizer."""
    text = str(load_checkpoint(trained.checkpoint).tokenizer)
    config = GPTConfig(
        BPETokenizer.from_json(text).vocab_size, d_model=16, num_heads=2, d_ff=16, num_layers=1, max_length=48, eos_id=2
    )
    path = tmp_path_factory.mktemp("gpt") / "gpt.safetensors"
    save_checkpoint(path, Checkpoint(config.to_dict(), GPT(config).parameters.state_dict(), tokenizer=text))
    return path


def test_a_page_of_a_translator(trained: Run, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "new" / "page.html"
    status, said, _ = command("explore", trained.checkpoint, "--out", out)
    assert status == 0
    assert said.startswith(f"{out}: ")
    page = out.read_text(encoding="utf-8")
    assert '"name":"step-00000004.safetensors","languages":["en","de"]' in page
    assert '"storage":"float32"' in page


def test_a_page_of_a_gpt_as_int8_with_examples(
    gpt: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = tmp_path / "examples.txt"
    examples.write_text("A dog\n\n  The old teacher  \n" + "long " * 100 + "\n", encoding="utf-8")
    write = ["explore", "--int8", gpt, "--out", tmp_path / "page.html", "--examples", examples]
    status, said, bar = command(*write)
    assert (status, bar) == (0, "")  # standard error is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "what int8 changes: 100%" in command(*write)[2]
    assert "of 3 greedy outputs are equal" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"examples":["A dog","The old teacher","long long' in page
    assert '"kind":"gpt"' in page


@pytest.mark.parametrize(("storage", "language"), [("float32", "english"), ("int8", "german")])
def test_a_page_of_a_captioner(tmp_path: Path, command: Command, storage: str, language: Language) -> None:
    tokenizer = caption_tokenizer(language)
    config = CaptionerConfig(len(tokenizer), d_model=16, num_heads=2, d_ff=16, num_layers=1)
    weights = Captioner(config).parameters.state_dict()
    save_checkpoint(tmp_path / "captioner", Checkpoint(config.to_dict(), weights, tokenizer=tokenizer.to_json()))
    out, options = tmp_path / "page.html", ["--int8"] if storage == "int8" else []
    status, said, _ = command("explore", tmp_path / "captioner", "--out", out, *options)
    assert status == 0
    assert ("of 50 greedy outputs are equal" in said) == (storage == "int8")
    page = out.read_text(encoding="utf-8")
    assert '"examples":["scene 0","scene 1","scene 2","scene 3","scene 4","scene 5"]' in page
    assert f'"caption":{json.dumps(caption(draw_scene("test", 0, 0), language))}' in page
    assert f'"storage":"{storage}"' in page


def test_what_it_refuses(trained: Run, tmp_path: Path, command: Command) -> None:
    page = tmp_path / "page.html"
    empty, many, long = (tmp_path / name for name in ("empty", "many", "long"))
    empty.write_text("\n  \n")
    many.write_text("A dog.\n" * 201)
    long.write_text("dog " * 300)
    start = ("explore", trained.checkpoint, "--out", page, "--examples")
    refuse(command, *start, empty, says="holds no sentence")
    refuse(command, *start, many, says="holds more than 200 sentences")
    refuse(command, *start, long, says="a line of 1199 characters, expected at most 1000")
    refuse(command, "explore", trained.checkpoint, says="required: --out")
    assert not page.exists()


def test_a_model_without_a_tokenizer_is_refused(trained: Run, tmp_path: Path, command: Command) -> None:
    checkpoint = load_checkpoint(trained.checkpoint)
    path = tmp_path / "bare.safetensors"
    save_checkpoint(path, Checkpoint(checkpoint.config, checkpoint.parameters))
    refuse(command, "explore", path, "--out", tmp_path / "page.html", says="holds no tokenizer")
