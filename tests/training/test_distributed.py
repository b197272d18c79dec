"""A training shared by several processes has the bits of one process, and ends without harm."""

import errno
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.folders import assert_same_training
from support.process_groups import returned, with_processes
from support.processes import wait_for
from support.torch_twins import TorchModel
from support.toy_training import SETTINGS, backwards, toy_model, toy_trainer

import kernels
from minitransformer.costs import most_gradients
from minitransformer.data.labelled import LabelledText
from minitransformer.data.text import TextDataset
from minitransformer.models import BERT, GPT, BERTConfig, GPTConfig
from minitransformer.training import DataParallel, Trainer, TrainingDiverged, TrainingSettings
from minitransformer.training.checkpoint import list_checkpoints
from minitransformer.training.parallel.processes import ALONE, LostError, PeerError, Processes
from minitransformer.training.parallel.shards import TreeSum, pieces, share, slices, subtrees

SHARED = replace(SETTINGS, steps=20, shards=8, tokens_per_batch=128, valid_interval=10, keep=9)
SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 1, "max_length": 16}


def lines(count: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 23, rng.integers(2, 13)) for _ in range(count)]


def gpt_trainer(folder: Path | None, settings: TrainingSettings, **options: Any) -> Trainer:
    config = GPTConfig(23, **SIZES, dropout=0.1, attention_dropout=0.1, bos_id=2, eos_id=2)
    train, valid = TextDataset.from_lines(lines(200, 0)), TextDataset.from_lines(lines(30, 1))
    return Trainer(GPT(config), train, settings, folder=folder, valid=valid, progress=False, **options)


def bert_trainer(folder: Path | None, settings: TrainingSettings, **options: Any) -> Trainer:
    config = BERTConfig(23, **SIZES, dropout=0.1, attention_dropout=0.1, head="classes", num_classes=2)
    rng = np.random.default_rng(2)
    data = LabelledText(TextDataset.from_lines(lines(150, 3)), rng.integers(2, size=150))
    return Trainer(BERT(config), data, settings, folder=folder, progress=False, **options)


TRAINERS: dict[str, Callable[..., Trainer]] = {"translator": toy_trainer, "gpt": gpt_trainer, "bert": bert_trainer}
"""Ragged batches, two of which make a step; dropout everywhere; clipped gradients."""


def train_all(processes: Processes, folder: Path, settings: TrainingSettings = SHARED) -> None:
    for name, trainer in TRAINERS.items():
        trainer(folder / name, settings, processes=processes).train()


def resume(processes: Processes, folder: Path, steps: int, **options: Any) -> Any:
    trainer = toy_trainer(folder, replace(SHARED, steps=steps), processes=processes, **options)
    if list_checkpoints(folder):
        trainer.resume()
    return trainer.train()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of one process's trainings, by model."""
    folder = tmp_path_factory.mktemp("alone")
    train_all(ALONE, folder)
    return folder


# --- The same bits ---------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 12))
def test_any_number_of_processes_adds_along_the_same_tree(shards: int, size: int) -> None:
    def add(left: list[str], right: list[str]) -> None:
        left[0] = f"({left[0]} {right.pop()})"

    alone = TreeSum(add)
    for shard in range(shards):
        alone.push(shard, [str(shard)])
    together = TreeSum(add)
    for rank in range(size):
        own = TreeSum(add)
        for shard in share(shards, rank, size):
            own.push(shard, [str(shard)])
        for (first, count), value in zip(subtrees(share(shards, rank, size)), own.sums, strict=True):
            together.push(first, value, count)
    assert together.total() == alone.total()


def test_the_tree() -> None:
    tree = TreeSum[list[str]](lambda left, right: left.__setitem__(0, f"({left[0]} + {right[0]})"))
    for number in range(7):
        tree.push(number, [str(number)])
    assert tree.total() == ["(((0 + 1) + (2 + 3)) + ((4 + 5) + 6))"]


@given(st.integers(1, 300_000), st.integers(1, 70))
def test_slices_are_whole_pieces_that_make_up_the_array(size: int, processes: int) -> None:
    edges = [edge for part in slices(size, processes) for edge in (part.start, part.stop)]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1], edges[1:-1:2]) == (0, size, edges[2::2])
    assert set(edges) <= {0, size, *(piece.start for piece in pieces(size))}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_checkpoints_and_log_are_those_of_one_process(size: int, alone: Path, tmp_path: Path) -> None:
    """Three kinds of model, 20 steps: every byte of every checkpoint, and the log but for its times."""
    returned(with_processes(size, train_all, tmp_path))
    for name in TRAINERS:
        assert_same_training(tmp_path / name, alone / name)


def test_a_training_goes_on_with_another_number_of_processes(alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "resumed"
    resume(ALONE, folder, 7)
    returned(with_processes(3, resume, folder, 14))
    returned(with_processes(2, resume, folder, 20))
    last = "step-00000020.safetensors"
    assert list_checkpoints(folder)[-1].name == last
    assert (folder / last).read_bytes() == (alone / "translator" / last).read_bytes()


def held(processes: Processes) -> tuple[int, int, int]:
    trainer = toy_trainer(None, SHARED, processes=processes)
    trainer.train()
    optimizer = trainer.optimizer
    return len(optimizer.m) + len(optimizer.v), len(trainer.model.parameters.data), processes.bytes_sent


def test_moments_are_shared_out_and_no_more_is_sent_than_in_a_ring() -> None:
    for size in (2, 4):
        results = returned(with_processes(size, held))
        (num_parameters,) = {of_one for _, of_one, _ in results}
        assert sum(moments for moments, _, _ in results) == 2 * num_parameters
        ring = 2 * (size - 1) / size * num_parameters * 4 * SHARED.steps
        assert np.mean([sent for _, _, sent in results]) == pytest.approx(ring)


def train_toy(processes: Processes, folder: Path, settings: TrainingSettings) -> None:
    toy_trainer(folder, settings, processes=processes).train()


@pytest.mark.parametrize("shards", [3, 7])
def test_as_many_shards_as_you_like(shards: int, tmp_path: Path) -> None:
    """More processes than shards, and shards that the processes do not divide."""
    settings = replace(SHARED, shards=shards, steps=4)
    train_toy(ALONE, tmp_path / "one", settings)
    returned(with_processes(4, train_toy, tmp_path / "four", settings))
    assert_same_training(tmp_path / "four", tmp_path / "one")


def of_tensors(processes: Processes, backend: str, dtype: str) -> np.ndarray:
    torch.set_num_threads(1)
    ops = kernels.torch_ops("cpu", dtype) if backend == "torch" else kernels.triton_ops("cpu", dtype)
    model = type(toy_model())(toy_model().config, ops)
    toy_trainer(None, replace(SHARED, steps=2, accumulate=1), model=model, valid=None, processes=processes).train()
    return np.concatenate([ops.to_numpy(model.parameters.data), ops.to_numpy(model.parameters.shadow.float())])


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [("torch", "bfloat16"), ("torch", "float32"), pytest.param("triton", "float32", marks=pytest.mark.slow)],
)
def test_tensors_too(backend: str, dtype: str) -> None:
    (expected,) = returned(with_processes(1, of_tensors, backend, dtype))
    for result in returned(with_processes(2, of_tensors, backend, dtype)):
        np.testing.assert_array_equal(result, expected)


class Twin(torch.nn.Module):
    """The toy model in PyTorch, whose loss is its own: for PyTorch's own data parallelism."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = TorchModel(toy_model(dropout=0.0, attention_dropout=0.0), torch.float32)
        named = {name.replace(".", "/"): torch.nn.Parameter(w.detach()) for name, w in self.twin.weights.items()}
        self.parameters_by_name = torch.nn.ParameterDict(named)

    def forward(self, batch: Any, num_targets: int) -> torch.Tensor:
        """This process's part of the loss, which is the sum of all parts."""
        self.twin.weights = {name.replace("/", "."): w for name, w in self.parameters_by_name.items()}
        return self.twin.loss(*batch.inputs, label_smoothing=0.1) * (batch.num_targets / num_targets)


def losses_of_ddp(processes: Processes) -> list[float]:
    module = torch.nn.parallel.DistributedDataParallel(Twin())
    optimizer = torch.optim.Adam(module.parameters(), betas=(0.9, 0.98), eps=1e-9)
    trainer, losses = toy_trainer(None, replace(SHARED, clip_norm=None)), []
    for step in range(20):
        batch = trainer.batches.batch(*divmod(step, len(trainer.batches)))
        part = batch.split(2)[processes.rank]
        optimizer.zero_grad()
        loss = module(part, batch.num_targets) * processes.size  # gradients are averaged over processes
        loss.backward()
        optimizer.param_groups[0]["lr"] = trainer.schedule(step + 1)
        optimizer.step()
        losses.append(float(processes.sum(np.array([loss.item() / processes.size]))[0]))
    return losses


def losses_of_ours(processes: Processes) -> list[float]:
    losses = []
    model = toy_model(dropout=0.0, attention_dropout=0.0)
    trainer = toy_trainer(
        None, replace(SHARED, clip_norm=None, accumulate=1), model=model, valid=None, processes=processes
    )
    take_step = trainer._train_step
    trainer._train_step = lambda workers: losses.append(take_step(workers)) or losses[-1]  # type: ignore[method-assign]
    trainer.train()
    return [record["loss"] for record in losses]


def test_losses_follow_pytorch_s_data_parallelism() -> None:
    theirs, ours = (returned(with_processes(2, losses))[0] for losses in (losses_of_ddp, losses_of_ours))
    assert len(ours) == len(theirs) == 20
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    assert ours[-1] < ours[0] - 0.1


# --- Ends ------------------------------------------------------------------------------------------------------


def stop_one(processes: Processes, folder: Path, rank: int) -> Any:
    trainer = toy_trainer(folder, SHARED, processes=processes)
    take_step = trainer._train_step

    def train_step(workers: Any) -> Any:
        if processes.rank == rank and trainer.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return take_step(workers)

    trainer._train_step = train_step  # type: ignore[method-assign]
    return trainer.train()


def test_a_request_to_stop_one_process_stops_all_after_the_same_step(alone: Path, tmp_path: Path) -> None:
    for outcome in returned(with_processes(3, stop_one, tmp_path / "it", 1)):
        assert (outcome.step, outcome.reason) == (5, "interrupted")
    assert [path.name for path in list_checkpoints(tmp_path / "it")] == [
        "step-00000004.safetensors", "step-00000005.safetensors",
    ]  # fmt: skip
    returned(with_processes(2, resume, tmp_path / "it", 20))
    (tmp_path / "it" / "step-00000005.safetensors").unlink(missing_ok=True)
    assert_same_training(tmp_path / "it", alone / "translator")


def differ(processes: Processes, what: str) -> None:
    odd = processes.rank == 2
    settings = replace(SHARED, shards=4) if what == "shards" and odd else SHARED
    options: dict[str, Any] = {}
    if what == "training set" and odd:
        options["dataset"] = backwards(150, seed=9)
    if what == "backend" and odd:
        options["model"] = type(toy_model())(toy_model().config, kernels.torch_ops("cpu", "bfloat16"), seed=1)
    if what == "d_ff" and odd:
        options["model"] = toy_model(d_ff=16)
    if what == "checksum of the parameters" and odd:
        options["model"] = toy_model()
        options["model"].parameters.data[0] += 1
    trainer = toy_trainer(None, settings, processes=processes, **options)
    if what == "version" and odd:
        facts = trainer._facts()
        trainer._facts = lambda: facts | {"version": ("0.0", "0.0")}  # type: ignore[method-assign]
    trainer.train()


def test_who_differs_is_named_everywhere_before_the_first_step() -> None:
    for what in ("training set", "d_ff", "shards", "version", "backend", "checksum of the parameters"):
        for error in with_processes(3, differ, what):
            assert isinstance(error, ValueError)
            assert f"process 2 has another {what} than process 0" in str(error)
            assert what != "shards" or str(error).endswith(": 4, not 8")
            assert len(str(error)) < 200


def map_others(processes: Processes) -> list[int]:
    return processes.map(abs, range(4 - processes.rank))


def test_work_of_another_length_is_refused() -> None:
    for error in with_processes(2, map_others):
        assert str(error) == "process 1 has another number of items than process 0: 3, not 4"


def fill_the_disk(processes: Processes, folder: Path, what: str) -> None:
    trainer = toy_trainer(folder, SHARED, processes=processes)

    def refuse(*arguments: Any) -> None:
        if what == "a pipe":
            raise BrokenPipeError(errno.EPIPE, "cannot write a pipe: No space left on device")
        raise OSError(errno.ENOSPC, f"cannot write {what}: No space left on device")

    if processes.first:
        if what == "the log":
            trainer._opened_log = refuse  # type: ignore[method-assign]
        else:
            trainer._save = refuse  # type: ignore[method-assign]
    trainer.train()


def diverge(processes: Processes) -> None:
    toy_trainer(None, replace(SHARED, peak_lr=1e30, warmup_steps=1), processes=processes).train()


def test_what_stops_one_process_stops_all_in_its_words(tmp_path: Path) -> None:
    for what in ("the log", "a checkpoint", "a pipe"):
        first, second = with_processes(2, fill_the_disk, tmp_path / "full", what)
        assert isinstance(first, OSError)
        assert isinstance(second, PeerError)
        assert str(second) == f"process 0: cannot write {what}: No space left on device"
    for error in with_processes(2, diverge):
        assert isinstance(error, TrainingDiverged)
    with pytest.raises(ValueError, match="2 processes share a training by its shards, but shards is None"):
        toy_trainer(None, SETTINGS, processes=Processes(0, 2))


def leave(processes: Processes, how: str) -> None:
    trainer = toy_trainer(None, SHARED, processes=processes)
    take_step = trainer._train_step

    def train_step(workers: Any) -> Any:
        if processes.rank == 1 and trainer.step == 2:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(20)
        return take_step(workers)

    trainer._train_step = train_step  # type: ignore[method-assign]
    trainer.train()


def interrupt_one(processes: Processes, folder: Path) -> None:
    """One waits for the other, which prepares data until Ctrl-C was heard."""
    if not processes.first:
        (folder / "process").write_text(str(os.getpid()))
    try:
        with processes.together(patient=True):
            if processes.first:
                wait_for(lambda: processes._store.check([f"ready/{processes._num_meetings + 1}/1"]))
                os.kill(int((folder / "process").read_text()), signal.SIGINT)
                wait_for((folder / "heard").exists)
    except KeyboardInterrupt:
        (folder / "heard").touch()


def test_ctrl_c_is_heard_while_another_process_prepares_the_data(tmp_path: Path) -> None:
    first, waiting = with_processes(2, interrupt_one, tmp_path)
    assert isinstance(first, LostError)
    assert waiting is None


class EndedStore:
    """The store of a launcher that has ended."""

    def set(self, name: str, value: str) -> None:
        raise RuntimeError("Connection reset by peer")


def test_a_lost_launcher_is_named() -> None:
    with (
        pytest.raises(LostError, match="process 1 lost the launcher before the first step"),
        Processes(1, 2, EndedStore()).together(patient=True),
    ):
        pass


def orphan(processes: Processes, since: list[int | None]) -> Any:
    """A training of whose processes each loses its launcher in another step, or keeps it."""
    os.environ["TORCHELASTIC_RUN_ID"] = "a run"
    trainer, step = toy_trainer(None, SHARED, processes=processes), since[processes.rank]
    take_step = trainer._train_step

    def train_step(workers: Any) -> Any:
        if trainer.step + 1 == step:
            processes._parent = -1
        return take_step(workers)

    trainer._train_step = train_step  # type: ignore[method-assign]
    return trainer.train()


def test_all_stop_without_launchers_and_none_where_some_have_one() -> None:
    """Two processes of one launcher may notice its end in two steps."""
    for outcome in returned(with_processes(2, orphan, [4, 5])):
        assert (outcome.step, outcome.reason) == (5, "its launcher ended")
        assert str(outcome) == "its launcher ended after step 5"
    with_launcher, without = with_processes(2, orphan, [None, 4])
    assert str(without) == "the launcher of process 1 has ended"
    assert isinstance(with_launcher, LostError)
    assert str(with_launcher).endswith("in step 5: no answer from process 1")


def test_only_torchrun_must_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(0, 1, EndedStore())
    processes._parent = -1
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not processes.orphaned
    assert processes.map(abs, [-1], while_launched=True) == [1]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a run")
    assert processes.orphaned
    assert processes.map(abs, [-1]) == [1]
    with pytest.raises(LostError, match="the launcher of process 0 has ended"):
        processes.map(abs, [-1], while_launched=True)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradients_that_are_alive_are_counted(threads: int) -> None:
    for shards in (1, 5, 8, 13):
        settings = replace(SHARED, steps=1, shards=shards, accumulate=1)
        trainer = toy_trainer(None, settings, valid=None)
        with DataParallel(trainer.model, threads, shards) as workers:
            trainer._train_step(workers)
        assert len(workers._replicas) == most_gradients(range(shards), threads)


def break_unevenly(processes: Processes) -> None:
    """A collective that one process completes, and in which another fails."""

    def reset() -> None:
        raise RuntimeError("Connection reset by peer")

    if processes.rank == 0:
        processes.collective(lambda: None)
    if processes.rank != 1:
        processes.collective(reset)


def test_who_waits_in_another_collective_is_not_missing() -> None:
    first, _, third = with_processes(3, break_unevenly)
    for rank, error in ((0, first), (2, third)):
        assert str(error) == f"process {rank} lost the connection before the first step: no answer from process 1"


def train_until_killed(processes: Processes, seconds: float) -> None:
    trainer = toy_trainer(None, replace(SHARED, steps=100_000), processes=processes)
    if processes.rank == 2:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # which ends the process, whatever it does
    trainer.train()


@pytest.mark.slow
def test_a_kill_at_any_moment_names_the_right_one() -> None:
    rng = random.Random(0)
    for _ in range(4):
        first, second, killed = with_processes(3, train_until_killed, rng.uniform(0.5, 2.5))
        assert killed is None
        for error in (first, second):
            assert isinstance(error, LostError)
            assert str(error).endswith(": no answer from process 2")


@pytest.mark.slow
@pytest.mark.parametrize(("how", "reason"), [("killed", "lost the connection"), ("stalled", "waited in vain")])
def test_who_is_missing_is_named_with_the_step(how: str, reason: str) -> None:
    first, missing, third = with_processes(3, leave, how, timeout=60.0 if how == "killed" else 10.0)
    for rank, error in ((0, first), (2, third)):
        assert isinstance(error, ConnectionError)
        assert str(error) == f"process {rank} {reason} in step 3: no answer from process 1"
    assert missing is None if how == "killed" else isinstance(missing, ConnectionError)
