"""A learner's kernels as machine code: compiled for an AMD gfx1100, and executed by `kernels.machine` on the CPU.

The executor checks every byte, so it finds races that Triton's interpreter cannot: two waves that use one place without
a barrier.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from . import answers
from .gpu import require_kernels
from .worker import call_in_worker

KINDS = {
    "load": r"(buffer|global|s)_load",
    "store": r"(buffer|global)_store",
    "shared memory": r"ds_(load|store)",
    "other lanes": r".*_dpp|v_permlane|v_readlane|v_readfirstlane|ds_bpermute|ds_swizzle",
    "barrier": r"s_barrier",
    "wait": r"s_waitcnt",
    "switch lanes": r".*saveexec|.* exec_lo,",
    "arithmetic": r"[vs]_",
}
"""A pattern of the mnemonics of each kind of instruction; the first pattern that matches decides."""
SILENT = re.compile(r"s_(clause|delay_alu|nop|sendmsg|set_inst)|buffer_gl")
"""Instructions about timing and caches, which listings leave out."""


def compiled(function: Callable[..., Any], *arrays: Any, order: str = "together", seed: int = 0) -> dict[str, Any]:
    """Run a function that launches kernels, with float32 tensors of these arrays, as machine code.

    Returns plain data: "returned", the result as lists, or None after a fault or an exception; "fault", the executor's
    message, and "raises", the exception's, each empty if there was none; and "launches", each with its number of
    "waves" and the number of "barriers" in its code. `order` is one of `kernels.machine.ORDERS`.
    """
    return call_in_worker(run_emulated, *_sent(function, arrays), order, seed)


def dissected(function: Callable[..., Any], *arrays: Any) -> dict[str, Any]:
    """Run a function that launches one kernel once, as machine code, and record the execution.

    Returns plain data: "code", each [kind, instruction, number of a line of Python, that line]; "executed", each
    [kind, instruction], all of the code but waits; "turns", each [index into "executed", the waves that execute it
    together]; and "lanes", the values in the 32 lanes of wave 0 before the first addition of floats and after each
    one, each [index of the addition, 32 floats].
    """
    return call_in_worker(trace_emulated, *_sent(function, arrays))


def kind_of(instruction: str) -> str:
    """Return the kind, one of `KINDS`, of an instruction."""
    return next(kind for kind, pattern in KINDS.items() if re.match(pattern, instruction))


def _sent(function: Callable[..., Any], arrays: Any) -> tuple[str, str, list[Any]]:
    """Return the arguments that the worker gets: the text of a self-contained module, the function's name, the arrays.

    Raises `ModuleNotFoundError` if kernels cannot run here.
    """
    require_kernels()
    function = inspect.unwrap(function)  # the answer behind a `Fallback`
    return answers.standalone_module(function), function.__name__, [np.asarray(each) for each in arrays]


# --- In the worker ----------------------------------------------------------------------------------------------


def run_emulated(text: str, name: str, arrays: list[Any], order: str, seed: int) -> dict[str, Any]:
    """Do the work of `compiled`, in the worker, for the function `name` of a module's text."""
    from kernels.machine import Fault, emulating

    found: dict[str, Any] = {"returned": None, "fault": "", "raises": "", "launches": []}

    def noted(assembly: str) -> str:
        (threads,) = re.findall(r"\.max_flat_workgroup_size: +(\d+)", assembly)
        found["launches"].append({"waves": int(threads) // 32, "barriers": assembly.count("s_barrier")})
        return assembly

    with emulating(order, seed, noted):
        try:
            result = _called(text, name, arrays)
            several = isinstance(result, tuple | list)
            found["returned"] = [each.tolist() for each in result] if several else result.tolist()
        except Fault as fault:
            found["fault"] = _in_words(str(fault), text)
        except Exception as problem:
            found["raises"] = _last_line(problem)
    return found


def trace_emulated(text: str, name: str, arrays: list[Any]) -> dict[str, Any]:
    """Do the work of `dissected`, in the worker, for the function `name` of a module's text."""
    from kernels.machine import emulating, execute
    from kernels.machine.registers import span

    assembly, turns, lanes = list[str](), list[Any](), list[Any]()
    blocks_of = execute.blocks_of

    def noting(step: Any, instruction: Any, number: int) -> Any:
        """Wrap a step of the executor so that its turns, and the lanes of additions, are recorded."""
        adds = re.match(r"v_(dual_)?add_f32", instruction.name)
        into, source = (span(each)[1] for each in instruction.operands[:2]) if adds else (0, 0)

        def execute(group: Any) -> None:
            waves = np.arange(group.scc.size)[group.waves].tolist()
            turns.append([number, waves])
            here = adds and 0 in waves

            def note(register: int) -> None:
                lanes.append([number, *group.vector[register, 0].view(np.float32).tolist()])

            if here and not lanes:
                note(source)
            step(group)
            if here:
                note(into)

        return execute

    def noted(program: Any) -> Any:
        return {
            start: block._replace(
                steps=[(noting(step, each, start + i), each) for i, (step, each) in enumerate(block.steps)]
            )
            for start, block in blocks_of(program).items()
        }

    with (
        mock.patch.object(execute, "blocks_of", noted),
        emulating("at random", rewrite=lambda text: assembly.append(text) or text) as emulation,
    ):
        _called(text, name, arrays)
    (launch,) = emulation.launches
    return {
        "code": listing(assembly[0], text),
        "executed": [[kind_of(each.text), each.text] for each in launch.program.instructions],
        "turns": turns,
        "lanes": lanes,
    }


def _called(text: str, name: str, arrays: list[Any]) -> Any:
    """Call the function `name` of a module's text with tensors of these arrays.

    Uninitialised memory is NaN. Otherwise it may hold the values of the last call, and the executor does not count a
    store that changes nothing as a race.
    """
    import torch

    torch.set_deterministic_debug_mode("warn")  # fills the tensors of torch.empty with NaN
    return answers.load_function(text, name)(*(torch.tensor(array, dtype=torch.float32) for array in arrays))


def listing(assembly: str, text: str) -> list[list[Any]]:
    """Return the instructions of an assembly, each [kind, text, number of the line of Python in `text`, that line]."""
    lines, number, found = ["", *text.splitlines()], 0, []
    for each in assembly.partition("s_endpgm")[0].splitlines():
        code, _, comment = each.partition(";")
        code = " ".join(code.split())
        if code.startswith(".loc"):  # for code inside tl.sum, the line that calls tl.sum comes last
            places = re.findall(r"<\w+ \d+>:(\d+):", comment)
            number = int(places[-1]) if places else number
        elif re.match(r"[a-z]+_.*[^:]$", code) and not SILENT.match(code):
            found.append([kind_of(code), code, number, lines[number].strip()])
    return found


def _in_words(fault: str, text: str) -> str:
    """Return the executor's message with lines of Python themselves in place of their numbers."""
    lines = ["", *text.splitlines()]
    return re.sub(r"<\w+ \d+>:(\d+)", lambda found: f"`{_short(lines[int(found[1])])}`", fault)


def _last_line(problem: Exception) -> str:
    """Return an exception's last line; for one of the compiler's, which quotes source code, also the line it marks."""
    *quoted, said = str(problem).strip().splitlines() or [""]
    line = f"`{_short(quoted[-2])}`: " if quoted and quoted[-1].strip() == "^" else ""
    return f"{type(problem).__name__}: {line}{said[:120]}"


def _short(line: str) -> str:
    """Return at most 80 characters of a line of code, without its comment."""
    return line.split("  #")[0].strip()[:80]
