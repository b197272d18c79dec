"""`inside`: a page of what a model does with a text, and one line where there can be none."""

from pathlib import Path

from support.cli_runs import Command, Run, refuse

from minitransformer import load_checkpoint, save_checkpoint
from minitransformer.training.checkpoint import Checkpoint


def test_a_page_of_a_translator(trained: Run, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "new" / "page.html"
    status, said, _ = command("inside", trained.checkpoint, "A dog sleeps.", "--out", out, "--max-tokens", "2")
    assert status == 0
    assert said.startswith(f"{out}: ")
    assert said.endswith("open it in a browser, it needs nothing else\n")
    page = out.read_text("utf-8")
    assert '"name":"step-00000004.safetensors","kind":"transformer"' in page
    torch = tmp_path / "torch.html"
    assert (
        command("inside", trained.checkpoint, "A dog.", "--out", torch, "--backend", "torch", "--device", "cpu")[0] == 0
    )


def test_what_it_refuses(trained: Run, tmp_path: Path, command: Command) -> None:
    bare, page = tmp_path / "bare.safetensors", tmp_path / "page.html"
    checkpoint = load_checkpoint(trained.checkpoint)
    save_checkpoint(bare, Checkpoint(checkpoint.config, checkpoint.parameters))
    for model, text, out, says in (
        (trained.checkpoint, " ", page, f"{trained.checkpoint}: the text is blank"),
        (trained.checkpoint, "dog " * 99, page, "but a page of this model shows at most 48: shorten it"),
        (trained.checkpoint, "\udcff", page, "the text is not UTF-8"),
        (trained.checkpoint, "A dog.", trained.checkpoint, "would replace what is read"),
        (trained.checkpoint, "A dog.", tmp_path, "cannot write"),
        (bare, "A dog.", page, "holds no tokenizer"),
        (tmp_path, "A dog.", page, "is a folder without a model"),
    ):
        refuse(command, "inside", model, text, "--out", out, says=says)
    refuse(command, "inside", trained.checkpoint, "A dog.", says="required: --out")
    assert not page.exists()
