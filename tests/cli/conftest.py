"""A model that the command line trained in a second, and a way to run commands in this process."""

import pytest
from support.cli_runs import SMALL, Command, Run, in_this_process, quick_picture, write_corpus

from minitransformer.cli import main
from minitransformer.cli.train import draw_losses


@pytest.fixture(autouse=True)
def quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time; `monkeypatch.undo()` gives a test the real ones."""
    for name in ("plot_loss", "plot_attention"):
        monkeypatch.setattr(f"minitransformer.plots.{name}", quick_picture)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process: its exit status, standard output and standard error."""
    return in_this_process(capsys)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished training of 4 steps; nobody changes it."""
    base = tmp_path_factory.mktemp("trained")
    run = Run(base / "run", write_corpus(base / "text"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.plots.plot_loss", quick_picture)
        assert main(["train", "--data", str(run.data), "--out", str(run.folder), *SMALL]) == 0
    draw_losses(run.folder)
    return run
