"""Kernels executed as machine code: faults are found, what was proved still holds, and no order changes a bit."""

import json
from pathlib import Path

import pytest
from support.kernels.machine_faults import in_a_process, said

from kernels import KERNELS
from kernels.machine import emulating, proof
from kernels.machine.__main__ import main
from kernels.proof import ledger

SCRIPTS = Path(__file__).parents[1] / "support" / "kernels"

FAULTS = {
    "no mask": "program 2, wave 1, lane 12 touches bytes 1200 to 1203 of x_ptr, which has 1200",
    "no barrier": "reads what another wave touches with no barrier between: byte 508 of y_ptr",
    "a sum of programs": "writes what another program touches: byte 0 of y_ptr",
    "reads an earlier program": "reads what another program touches: byte 4 of y_ptr",  # byte 0 gets the 0 it has
    "reads a later program": "reads what another program touches: byte 512 of y_ptr",
    "lanes disagree": "disagrees with another lane about what to write: byte 0 of y_ptr",
    "unknown": "the executor does not know this instruction",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault):
    """By the kernel, its line, the program, the wave, the lane and the byte."""
    assert said()[fault].endswith(FAULTS[fault])
    if fault != "unknown":
        kernel, line, _ = said()[fault].split(",", 2)
        assert kernel.isidentifier()
        assert line.startswith(" machine_faults.py:")


@pytest.mark.parametrize("kernel", ["none", "a barrier"])
def test_what_is_right_is_found_right(kernel):
    assert said()[kernel] == "right"


def test_afterwards_triton_is_as_it_was():
    """It looks for a GPU, and finds none or refuses tensors of the CPU; nothing that was compiled is left."""
    assert said()["afterwards"].startswith(("0 active drivers", "Pointer argument"))
    assert said()["afterwards"].endswith(", 0 compiled")


def test_the_interpreter_compiles_nothing():
    with pytest.raises(RuntimeError, match="without TRITON_INTERPRET"), emulating():
        pass


def test_everything_is_in_the_manifest():
    manifest = ledger.manifest()
    assert list(manifest) == list(KERNELS)
    assert all(set(entry["dtypes"]) == set(ledger.DTYPES) for entry in manifest.values())
    assert all(found["of_allowed"] <= 1 for entry in manifest.values() for found in entry["dtypes"].values())


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_the_command_says_that_nothing_has_changed(options, monkeypatch, capsys):
    monkeypatch.setattr(proof, "stale", lambda *_: [])
    monkeypatch.setattr(proof, "write", lambda ops: None)
    monkeypatch.setattr("sys.argv", ["machine", *options])
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # which the command takes away
    assert main() == 0
    assert capsys.readouterr().out == "nothing has changed since it was proved as machine code\n"


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_sample_is_proved_again(count):
    """Another one whenever a kernel changes."""
    proved = in_a_process(str(SCRIPTS / "machine_proofs.py"), "sample", str(count))
    assert len(proved) == count


@pytest.mark.slow
def test_what_only_hopper_uses_is_proved_too():
    """Descriptors and a loop over rows mean the same on every GPU."""
    assert in_a_process(str(SCRIPTS / "machine_proofs.py"), "hoppers") == ["attention: 18", "softmax: 9"]


@pytest.mark.slow
def test_what_was_proved_is_what_the_compiler_makes():
    changed = in_a_process(str(SCRIPTS / "machine_proofs.py"), "stale")
    assert changed == [], "prove them: python -m kernels.machine"


@pytest.mark.slow
@pytest.mark.parametrize("op", KERNELS)
def test_no_order_of_waves_changes_a_bit(op):
    """In turn, in reverse and at random the outputs and gradients are those of all waves together."""
    assert in_a_process(str(SCRIPTS / "machine_proofs.py"), "orders", op) == []


@pytest.mark.slow
def test_a_barrier_that_is_missing_is_noticed():
    """Each barrier of some kernels is left out in turn: the watch sees it, or the bits are the same in every order.

    The compiler is careful: of 50 barriers six separate nothing.
    """
    found = in_a_process(str(SCRIPTS / "machine_proofs.py"), "barriers")
    assert found["noticed"] >= 0.75 * found["left out"], json.dumps(found)
    assert found["other bits"] == 0
