"""Reads the assembly that Triton prints for AMD's gfx1100: instructions, labels, arguments and resources."""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

WITHOUT_EFFECT = re.compile(
    r"s_(clause|delay_alu|waitcnt\w*|wait_idle|nop|sendmsg|set_inst_prefetch_distance|sleep|setprio|code_end)$"
    r"|v_nop$|buffer_gl[01]_inv$"
)
"""Instructions about time and caches. The executor has neither: a load is complete before the next instruction."""


class Unknown(Exception):
    """An instruction, or an operand of one, that the executor does not know."""


class Instruction(NamedTuple):
    """The parts of `v_add_f32_dpp v1, v2, v3 row_shr:1`; `second` is the other half of a dual instruction."""

    name: str
    operands: tuple[str, ...]
    modifiers: dict[str, str]
    text: str
    source: str
    """The line of Python that it comes from: "softmax.py:50"; empty if the compiler names none."""
    second: "Instruction | None" = None


class Argument(NamedTuple):
    """The place of one of a kernel's arguments; `hidden` names one that the launch adds, such as "block_count_x"."""

    offset: int
    size: int
    hidden: str


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel as text: its instructions, the labels among them, its arguments and the resources that it needs."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    """The number of the instruction that follows each label."""
    arguments: tuple[Argument, ...]
    needs: dict[str, int]
    """The numbers of the block `.amdhsa_kernel`, such as `next_free_vgpr`, without their prefix."""

    @property
    def hash(self) -> str:
        """The hash of the instructions, without their places in the source: equal hashes compute the same."""
        branches = sorted((number, label) for label, number in self.labels.items() if label.startswith(".LBB"))
        code = [each.text for each in self.instructions]
        return hashlib.sha256(repr((code, branches, self.needs)).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def parse(text: str) -> Program:
    """Parse the only kernel of an assembly. Raises `ValueError` for a text that has none."""
    found = re.search(r"^\s*\.amdhsa_kernel (\S+)$(.*?)^\s*\.end_amdhsa_kernel", text, re.M | re.S)
    if found is None:
        raise ValueError("the text is no assembly of a kernel for AMD: it has no .amdhsa_kernel")
    needs = {name: int(value) for name, value in re.findall(r"\.amdhsa_(\w+) (\d+)$", found[2], re.M)}
    instructions, labels = _code(text[: found.start()])
    return Program(found[1], instructions, labels, _arguments(text), needs)


def _code(text: str) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    source = ""
    for line in text.splitlines():
        code, _, comment = line.partition(";")
        code = code.strip()
        if code.startswith(".loc"):
            source = comment.split("@")[0].strip().rpartition(":")[0]  # "softmax.py:50:12" without the column
        elif code.endswith(":"):
            labels[code[:-1]] = len(instructions)
        elif code and not code.startswith(".") and not WITHOUT_EFFECT.match(code.split()[0]):
            instructions.append(instruction(code, source))
    return tuple(instructions), labels


def instruction(text: str, source: str = "") -> Instruction:
    """Parse one line of code."""
    first, *others = (_half(half.strip(), text, source) for half in text.split("::"))
    return first._replace(second=others[0]) if others else first


def _half(text: str, whole: str, source: str) -> Instruction:
    name, _, rest = text.partition(" ")
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])(?![^(]*\))", rest)]
    last, *words = parts[-1].split() or [""]
    modifiers = dict((word.split(":", 1) if ":" in word else (word, "1")) for word in words)
    operands = tuple(part for part in (*parts[:-1], last) if part)
    return Instruction(name, operands, modifiers, whole, source)


def _arguments(text: str) -> tuple[Argument, ...]:
    """Read the arguments from the notes in YAML."""
    notes = re.search(r"\.args:\n(.*?)^    \.\w", text, re.M | re.S)
    pattern = r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(?:hidden_)?(?:by_value|global_buffer|(\w+))"
    found = re.findall(pattern, notes[1]) if notes else []
    return tuple(Argument(int(offset), int(size), hidden) for offset, size, hidden in found)
