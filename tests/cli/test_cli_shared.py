"""`train` and `evaluate` in processes of a launcher: who has something else is named, and nothing is harmed."""

import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.cli_runs import SMALL, Command, Run, quick_picture, refuse, write_corpus
from support.folders import contents
from support.process_groups import returned, with_processes

from minitransformer.cli import main
from minitransformer.costs import reading_bytes
from minitransformer.data import BPETokenizer
from minitransformer.models import GPTConfig, build_model
from minitransformer.training.checkpoint import Checkpoint, save_checkpoint

Arguments = list[str]
TORCHRUN = {"TORCHELASTIC_RUN_ID": "a run", "GROUP_WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


def commands(rank: int, each: list[list[Arguments]], variables: dict[str, str]) -> list[tuple[int, str, str]]:
    """Run commands one after the other, each with this process's arguments: status, standard output and error."""
    os.environ |= variables
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.plots.plot_loss", quick_picture)
        for of_ranks in each:
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                status = main(of_ranks[rank])
            results.append((status, out.getvalue(), err.getvalue()))
    return results


def in_one(arguments: Arguments, variables: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command in the one process that a launcher has started; return its status, output and errors."""
    ((result,),) = returned(with_processes(1, commands, [[arguments]], variables or {}, joins=False))
    return result


def in_two(*each: tuple[Arguments, Arguments]) -> list[tuple[str, str]]:
    """Return the last words of both processes on commands that must fail in both."""
    by_rank = returned(with_processes(2, commands, each, {}, joins=False))
    assert all(status == 2 for results in by_rank for status, _, _ in results), by_rank
    first, second = ([err.splitlines()[-1] for _, _, err in results] for results in by_rank)
    return list(zip(first, second, strict=True))


def training(data: Path, out: Path, *options: str) -> Arguments:
    return ["train", "--data", str(data), "--out", str(out), *SMALL, "--timeout", "60", *options]


def test_another_text_is_refused_before_anything_is_overwritten(trained: Run, tmp_path: Path) -> None:
    """A used folder goes on with its own training only, not with another folder's text or one that has changed."""
    out, data = tmp_path / "run", write_corpus(tmp_path / "text")
    other, changed = write_corpus(tmp_path / "other", train=190), tmp_path / "text" / "train.en"
    begin = training(data, out)
    assert in_one(begin)[0] == 0
    kept = contents(out)
    status, _, err = in_one(training(other, out))
    assert status == 2
    assert "already holds a training: add --resume to go on with it" in err
    assert contents(out) == kept
    status, said, _ = in_one(begin)
    assert status == 0
    assert "going on with the training" in said
    assert contents(out) == kept
    lines = changed.read_text().splitlines()
    changed.write_text("\n".join(lines[::-1]) + "\n")
    status, _, err = in_one(begin)
    assert status == 2
    assert "already holds a training" in err
    assert contents(out) == kept


def test_who_trains_on_something_else_is_named(trained: Run, tmp_path: Path) -> None:
    other = write_corpus(tmp_path / "other", train=190)
    first = training(trained.data, tmp_path / "run")
    shutil.copytree(trained.data, tmp_path / "copy")
    said = in_two(
        (first, training(other, tmp_path / "run")),
        (first, [*first, "--seed", "64"]),
        (first, [*first, "--label-smoothing", "0.2"]),
        (first, [*first, "--backend", "torch", "--dtype", "bfloat16"]),
        (first, training(trained.data, tmp_path / "elsewhere")),
    )
    text, seed, smoothing, backend, folder = said
    assert text[0] == text[1]
    assert f"process 1 has another data than process 0: {other}, not {trained.data}" in text[0]
    assert "process 1 has another seed than process 0: 64, not 0" in seed[0]
    assert "process 1 has another label_smoothing than process 0: 0.2, not 0.1" in smoothing[0]
    names = "kernels.eager on cpu, bfloat16, not minitransformer.ops on cpu, float32"
    assert f"process 1 has another backend than process 0: {names}" in backend[0]
    assert "all processes need it in common" in folder[1]
    assert folder[0].endswith(folder[1].partition("error: ")[2])


def test_who_evaluates_something_else_is_named(trained: Run, tmp_path: Path) -> None:
    model, data = str(trained.checkpoint), ["--data", str(trained.data), "--timeout", "60"]
    other = write_corpus(tmp_path / "other", test=7)
    first = ["evaluate", model, *data]
    parameters, test_set, beam, backend = in_two(
        (first, ["evaluate", str(trained.folder / "step-00000002.safetensors"), *data]),
        (first, ["evaluate", model, "--data", str(other)]),
        (first, [*first, "--beam", "1"]),
        (first, [*first, "--backend", "torch"]),
    )
    assert "process 1 has another checksum of the parameters than process 0" in parameters[0]
    assert "process 1 has another test set than process 0: 14 lines" in test_set[0]
    assert "process 1 has another beam than process 0: 1, not 4" in beam[0]
    assert "process 1 has another backend than process 0: kernels.eager on cpu, float32" in backend[0]


def in_its_memory(rank: int, arguments: Arguments, limits: list[int]) -> tuple[int, str, str]:
    """Run a command on a machine that has this memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.cli.backend.memory_limit", lambda: limits[rank])
        return commands(rank, [[arguments] * len(limits)], {"LOCAL_WORLD_SIZE": "1"})[0]


def test_the_smallest_machine_decides_on_the_windows_of_a_text(tmp_path: Path) -> None:
    config = GPTConfig(275, 16, 2, 32, 2, max_length=32, bos_id=2, eos_id=2)
    tokenizer = BPETokenizer.train(["a dog sees a cat"], 275)
    (tmp_path / "text").write_text("a dog sees a cat\n" * 9)
    saved = Checkpoint(config.to_dict(), build_model(config).parameters.state_dict(), tokenizer=tokenizer.to_json())
    save_checkpoint(tmp_path / "model", saved)
    arguments = ["evaluate", str(tmp_path / "model"), "--text", str(tmp_path / "text")]
    limits = [10**12, 4 * config.num_parameters + 2 * reading_bytes(config, 8)]
    first, second = returned(with_processes(2, in_its_memory, arguments, limits, joins=False))
    assert (first[0], second[0]) == (0, 0), second
    assert first[1].startswith(f"{'window':20}{8:12}")
    assert first[1].partition("\n")[2] == in_one([*arguments, "--context", "8"])[1]


def test_how_to_go_on_under_torchrun(trained: Run, tmp_path: Path) -> None:
    arguments = training(trained.data, tmp_path / "run", "--minutes", "0.0001")
    status, out, _ = in_one(arguments, TORCHRUN)
    assert status == 0
    again = f"torchrun --standalone --nproc-per-node 1 -m minitransformer train --resume {tmp_path / 'run'}"
    assert f"to go on: {again}" in out


def test_sums_of_shards_need_memory(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.cli.backend.memory_limit", lambda: 10**9)
    options = ["--preset", "base", "--dataset", "grammar", "--out", tmp_path / "run", "--threads", "1", "--shards", "8"]
    says = "takes at least 1.27 GB of memory to train: weights, 4 gradients at a time, Adam's two moments"
    refuse(command, "train", *options, says=says)


@pytest.mark.parametrize("name", ["translate", "generate", "demo", "info"])
def test_commands_of_one_process_say_so(name: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = [] if name == "demo" else ["model.safetensors"]
    says = f"only train and evaluate share their work among processes: run {name} without torchrun"
    refuse(command, name, *model, says=says)
