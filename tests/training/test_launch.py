"""The variables that a launcher sets for a process, and mistakes in them."""

import pytest
from support.toy_training import toy_model

import kernels
from minitransformer.models import Transformer
from minitransformer.training.parallel.launch import ADDRESS, Place, disagreement, facts_of, launched_place
from minitransformer.training.parallel.processes import ALONE, Processes

COMPLETE = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ADDRESS, "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def launch(patch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        patch.setenv(name, value)


def test_without_a_launcher_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Processes.join() is ALONE
    launch(monkeypatch, RANK="0", WORLD_SIZE="1")
    assert Processes.join() is ALONE


def test_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, **COMPLETE, LOCAL_RANK="1")
    assert launched_place() == Place(1, 1, 2)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MASTER_ADDR", "", "WORLD_SIZE is 2, but MASTER_ADDR is not set: start it with torchrun"),
        ("RANK", "", "WORLD_SIZE is 2, but RANK is not set: start it with torchrun"),
        ("RANK", "x", "the launcher's variable RANK is 'x', expected a number from 0 to 1"),
        ("RANK", "5", "the launcher's variable RANK is '5', expected a number from 0 to 1"),
        ("RANK", "-1", "the launcher's variable RANK is '-1', expected a number from 0 to 1"),
        ("MASTER_PORT", "abc", "the launcher's variable MASTER_PORT is 'abc', expected a number from 1 to 65535"),
        ("WORLD_SIZE", "0", "the launcher's variable WORLD_SIZE is '0', expected a number from 1 to 1000000"),
        ("WORLD_SIZE", "", "the launcher's variable WORLD_SIZE is '', expected a number from 1 to 1000000"),
        ("LOCAL_RANK", "²", "the launcher's variable LOCAL_RANK is '²', expected a number from 0 to 1"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, **COMPLETE | {name: value})
    with pytest.raises(ValueError, match=says):
        Processes.join(timeout=1)


def test_one_gpu_is_not_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, **COMPLETE)
    with pytest.raises(ValueError, match="2 processes cannot share cuda:0: with --device cuda each takes its own GPU"):
        Processes.join("cuda:0", timeout=1)


def test_activations_of_another_type_are_another_backend() -> None:
    tables = [kernels.torch_ops("cpu", dtype) for dtype in ("float32", "bfloat16")]
    said = disagreement([facts_of(Transformer(toy_model().config, ops)) for ops in tables])
    backend = "kernels.eager on cpu"
    assert said == f"process 1 has another backend than process 0: {backend}, bfloat16, not {backend}, float32"


def test_fields_of_one_name_are_not_mixed_up() -> None:
    facts = {"a": {"width": 1, "inner": {"width": 2}}, "b": 3}
    assert disagreement([facts, facts]) is None
    other = {"a": {"width": 1, "inner": {"width": 4}}, "b": 3}
    assert disagreement([facts, facts, other]) == "process 2 has another width than process 0: 4, not 2"
    assert disagreement([facts, facts | {"c": "new"}]) == "process 1 has another c than process 0: new, not None"
