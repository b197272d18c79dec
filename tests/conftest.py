"""The setting of every test: one thread each, Triton's interpreter, repeatable cases, and the table of the proof."""

import os
import signal
import subprocess
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import hypothesis
import pytest
import torch
from support.making_breakages import Workshop
from support.prove import Proof
from threadpoolctl import threadpool_limits

# The same cases on every run and machine, so that a red test is red for everybody. `--hypothesis-profile=explore`
# draws new ones, and many more.
hypothesis.settings.register_profile("repeatable", max_examples=60, derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("explore", max_examples=1000, derandomize=False, database=None, deadline=None)
# The first failure is enough where a test is meant to fail: looking for the smallest takes minutes.
phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("breakages", hypothesis.settings.get_profile("repeatable"), phases=phases)
hypothesis.settings.load_profile("repeatable")

PROOF = pytest.StashKey[Proof]()
UNTIL = pytest.StashKey[float]()
"""When a slow test's turn is over, on the clock of `monotonic`."""


# --- Which slow tests a change runs -----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--draw SECONDS`, for CI, and `--proof FILE`, for the site."""
    said = "only slow tests: for three quarters of the time those of changed rooms, then others; drawn by HEAD"
    parser.addoption("--draw", type=float, metavar="SECONDS", help=said)
    parser.addoption("--proof", type=Path, metavar="FILE", help="write the table of the proof as JSON")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slow tests into the order in which they are drawn. A room has changed if a commit of a day touched it.

    One that is marked with its minutes must begin so much earlier.
    """
    seconds = config.option.draw
    if seconds is None:
        return
    commands = ["rev-parse HEAD", "log --since=1.day --name-only --format="]
    head, changes = (subprocess.check_output(["git", *command.split()], text=True) for command in commands)
    rooms = {part for path in changes.split() for part in Path(path).parts[:-1]} - {"tests", "support"}
    began = monotonic()
    items[:] = [item for item in items if item.get_closest_marker("slow")]
    order: dict[str, tuple[bool, bytes]] = {}
    for item in items:
        changed = any(room in item.nodeid for room in rooms)
        minutes = max(mark.kwargs.get("minutes", 0) for mark in item.iter_markers("slow"))
        item.stash[UNTIL] = began + seconds * (0.75 if changed else 1) - 60 * minutes
        order[item.nodeid] = not changed, sha256(f"{head}{item.nodeid}".encode()).digest()
    items.sort(key=lambda item: order[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Leave out the tests whose turn is over, and end what an earlier one has left set up for them."""
    if UNTIL not in item.stash or monotonic() < item.stash[UNTIL]:
        return None
    item.session._setupstate.teardown_exact(nextitem)
    return True


# --- The session --------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in a shell's background job: Ctrl-C's tests would hang
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The arrays of a proof are small: threads would only get in each other's way.
    threadpool_limits(1)
    torch.set_num_threads(1)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # for the processes that tests start
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read once, when triton is first imported
    config.stash[PROOF] = Proof()


@pytest.fixture(scope="session", autouse=True)
def _answers_of_tests_are_no_learners(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["COURSE_ANSWERS"] = str(tmp_path_factory.mktemp("answers"))


@pytest.fixture(autouse=True)
def _torch_draws_the_same_numbers_in_each_test() -> None:
    torch.manual_seed(0)  # else they depend on which tests ran before, in the same process


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Return the workshop where mistakes are made in a copy of the code."""
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def proof(pytestconfig: pytest.Config) -> Proof:
    """The record of what was proved: `proof.record("softmax", "autograd", error)`."""
    return pytestconfig.stash[PROOF]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes hands its part of the table to the one that prints it."""
    handed_on: dict[str, Any] = getattr(session.config, "workeroutput", {})
    handed_on["proof"] = session.config.stash[PROOF].worst


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """… which adds it to its own; a process that died has none."""
    for component, errors in getattr(node, "workeroutput", {}).get("proof", {}).items():
        for kind, error in errors.items():
            node.config.stash[PROOF].record(component, kind, error)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """The table: component | worst error against autograd | worst error against finite differences."""
    lines = config.stash[PROOF].table()
    if lines:
        terminalreporter.section("the proof")
        for line in lines:
            terminalreporter.write_line(line)
    if config.option.proof is not None and exitstatus == pytest.ExitCode.OK:
        config.option.proof.parent.mkdir(parents=True, exist_ok=True)
        config.option.proof.write_text(config.stash[PROOF].json(), encoding="utf-8")
