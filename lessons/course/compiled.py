"""A learner's kernels as machine code: compiled for an AMD gfx1100, and executed by `kernels.machine` on the CPU.

The executor watches every byte, so it sees what the interpreter cannot: two waves on one place without a barrier.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from . import answers
from .beside import beside
from .gpu import require

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
"""What an instruction does, by how it begins; the first that fits."""
SILENT = re.compile(r"s_(clause|delay_alu|nop|sendmsg|set_inst)|buffer_gl")
"""About time and caches: not shown."""


def compiled(function: Callable[..., Any], *arrays: Any, order: str = "together", seed: int = 0) -> dict[str, Any]:
    """Run a function that launches kernels, with float32 tensors of these arrays, as machine code.

    → plain data: what it "returned" (lists), None where it did not come so far; the executor's "fault", what it
    "raises", both empty where all is well; of each launch its "waves", and how many "barriers" its code has. `order` is
    one of `kernels.machine.ORDERS`.
    """
    return beside(executed, *_sent(function, arrays), order, seed)


def dissected(function: Callable[..., Any], *arrays: Any) -> dict[str, Any]:
    """The same for a function that launches one kernel once, taken apart.

    → plain data: its "code", each [kind, instruction, number of a line of Python, that line]; what is "executed" of it,
    each [kind, instruction], which is all but waits; its "turns", each [number of what is executed, the waves that do
    it together]; and what the 32 "lanes" of wave 0 hold before the first addition of floats and after each, all of them
    [number of the addition, 32 floats].
    """
    return beside(watched, *_sent(function, arrays))


def kind_of(instruction: str) -> str:
    """Which of `KINDS` an instruction is."""
    return next(kind for kind, pattern in KINDS.items() if re.match(pattern, instruction))


def _sent(function: Callable[..., Any], arrays: Any) -> tuple[str, str, list[Any]]:
    """The text of a function that stands alone, its name there, and the arrays.

    Raises `ModuleNotFoundError` where kernels cannot be run.
    """
    require()
    function = inspect.unwrap(function)  # what a stand-in stands for
    return answers.text_alone(function), function.__name__, [np.asarray(each) for each in arrays]


# --- In the other process ---------------------------------------------------------------------------------------


def executed(text: str, name: str, arrays: list[Any], order: str, seed: int) -> dict[str, Any]:
    """`compiled`, of a function's text."""
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


def watched(text: str, name: str, arrays: list[Any]) -> dict[str, Any]:
    """`dissected`, of a function's text."""
    from kernels.machine import emulating, execute
    from kernels.machine.registers import span

    assembly, turns, lanes = list[str](), list[Any](), list[Any]()
    blocks_of = execute.blocks_of

    def noting(step: Any, instruction: Any, number: int) -> Any:
        """A step that is executed as before, and noted."""
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
    """What the function returns for tensors of these arrays.

    Memory that nobody has written is NaN: else it may hold what the last call stored there, and a store that changes
    nothing is no race.
    """
    import torch

    torch.set_deterministic_debug_mode("warn")  # fills what torch.empty gives
    return answers.loaded(text, name)(*(torch.tensor(array, dtype=torch.float32) for array in arrays))


def listing(assembly: str, text: str) -> list[list[Any]]:
    """The instructions of an assembly: the kind, the text, and the line of Python in a module's text."""
    lines, number, found = ["", *text.splitlines()], 0, []
    for each in assembly.partition("s_endpgm")[0].splitlines():
        code, _, comment = each.partition(";")
        code = " ".join(code.split())
        if code.startswith(".loc"):  # of what tl.sum is made of, the line that calls it comes last
            places = re.findall(r"<\w+ \d+>:(\d+):", comment)
            number = int(places[-1]) if places else number
        elif re.match(r"[a-z]+_.*[^:]$", code) and not SILENT.match(code):
            found.append([kind_of(code), code, number, lines[number].strip()])
    return found


def _in_words(fault: str, text: str) -> str:
    """What the executor says, with the line of Python itself in the place of its number in a text."""
    lines = ["", *text.splitlines()]
    return re.sub(r"<\w+ \d+>:(\d+)", lambda found: f"`{_short(lines[int(found[1])])}`", fault)


def _last_line(problem: Exception) -> str:
    """What an exception says; of one of the compiler's, which quotes all before it, the line that it points at."""
    *quoted, said = str(problem).strip().splitlines() or [""]
    line = f"`{_short(quoted[-2])}`: " if quoted and quoted[-1].strip() == "^" else ""
    return f"{type(problem).__name__}: {line}{said[:120]}"


def _short(line: str) -> str:
    """A line of code without its comment."""
    return line.split("  #")[0].strip()[:80]
