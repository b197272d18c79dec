"""Runs a kernel: its programs, their waves, barriers, and the order in which waves take turns."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import lanes, matrix, memory, scalar, vector
from .assembly import Instruction, Program, Unknown
from .memory import SIZES, Memory
from .registers import EXEC, LANES, POISON, VCC, Group, Registers, Step
from .watch import Fault

RUNNING, WAITING, ENDED = range(3)

ORDERS = ("together", "in turn", "in reverse", "at random")
"""The orders in which waves take turns: all waves at the same instruction at once; or one after the other, from one
barrier to the next, first to last or last to first; or some at random."""

AT_ONCE = 1024
"""The waves whose registers are held at once: 32 KiB each if a kernel needs 256 registers."""


class Region(NamedTuple):
    """A tensor's bytes in global memory."""

    name: str
    start: int
    size: int


class Block(NamedTuple):
    """Instructions that are executed one after the other, and the blocks that may follow."""

    steps: list[tuple[Step, Instruction]]
    branch: Instruction | None
    following: int
    target: int


@lru_cache(maxsize=256)
def blocks_of(program: Program) -> dict[int, Block]:
    """Cut a program into blocks, by the number of their first instruction. Raises `Unknown` for an unknown one."""
    labels, code = program.labels, program.instructions
    ends = {number + 1 for number, each in enumerate(code) if _ends_a_block(each)}
    starts = sorted({0, *labels.values(), *ends} - {len(code)})
    blocks = {}
    for start, stop in zip(starts, [*starts[1:], len(code)], strict=True):
        body, last = list(code[start:stop]), code[stop - 1]
        branch = body.pop() if _ends_a_block(last) else None
        target = labels[last.operands[0]] if branch and last.name.startswith(("s_branch", "s_cbranch")) else stop
        blocks[start] = Block([(step_of(each), each) for each in body], branch, stop, target)
    return blocks


def _ends_a_block(instruction: Instruction) -> bool:
    return instruction.name.startswith(("s_branch", "s_cbranch", "s_barrier", "s_endpgm"))


def step_of(instruction: Instruction) -> Step:
    """Return a function that executes an instruction. Raises `Unknown` for one that the executor does not know."""
    for kind in (scalar, lanes, vector, matrix, memory):
        try:
            found = kind.step(instruction)
        except Unknown as error:
            raise Unknown(f"{instruction.text!r}: the executor does not know {error}") from None
        if found is not None:
            return found
    raise Unknown(f"{instruction.text!r}: the executor does not know this instruction")


class Machine:
    """Programs of one kernel, `waves` each, that run side by side."""

    def __init__(
        self, program: Program, programs: Sequence[tuple[int, int, int]], numbers: Any, waves: int,
        shared_size: int, arguments: np.ndarray, arguments_at: int, memory: Memory, memory_at: int, owner: np.ndarray,
        regions: Sequence[Region],
    ) -> None:  # fmt: skip
        self.code, self.blocks = program, blocks_of(program)
        self.num_waves, self.waves = len(programs) * waves, waves
        self.program = np.repeat(np.asarray(numbers, np.int32), waves)  # (waves of all programs,)
        self.wave = np.tile(np.arange(waves, dtype=np.int32), len(programs))
        self.local = np.repeat(np.arange(len(programs)), waves)
        self.phase = np.zeros(self.num_waves, np.int32)
        """The barriers that each wave has passed."""
        self.memory, self.memory_at, self.owner, self.regions = memory, memory_at, owner, regions
        self.arguments, self.arguments_at = arguments.view(np.uint32), arguments_at
        self.shared_size = shared_size
        room = -(-shared_size // 16) * 16
        nothing = np.full(room * len(programs) // 4, POISON).view(np.uint8)
        self.shared = Memory(nothing, _granule(program, "ds_"), "shared memory")
        self.shared_base = self.local.astype(np.int64) * room
        self.scratch_size = program.needs["private_segment_fixed_size"]
        self.scratch = Memory(np.zeros(self.num_waves * LANES * self.scratch_size, np.uint8), 1, "scratch")
        self.registers = self._registers(program, programs)
        self.place = np.zeros(self.num_waves, np.int64)
        self.state = np.full(self.num_waves, RUNNING)
        self.executed = 0
        """The number of executed instructions, summed over the waves."""

    def _registers(self, program: Program, programs: Sequence[tuple[int, int, int]]) -> Registers:
        """Make registers as the hardware fills them: the arguments' address, the program's number, lanes' in v0."""
        needs = program.needs
        registers = Registers(needs["next_free_vgpr"], self.num_waves)
        registers.scalar[0], registers.scalar[1] = self.arguments_at & 0xFFFFFFFF, self.arguments_at >> 32
        number = needs["user_sgpr_count"]
        for axis, name in enumerate("xyz"):
            if needs[f"system_sgpr_workgroup_id_{name}"]:
                registers.scalar[number] = np.array([each[axis] for each in programs], np.uint32)[self.local]
                number += 1
        registers.vector[0] = self.wave.astype(np.uint32)[:, None] * LANES + np.arange(LANES, dtype=np.uint32)
        return registers

    # --- Turns ----------------------------------------------------------------------------------------------------

    def run(self, order: str = "together", rng: np.random.Generator | None = None) -> int:
        """Execute until all waves have ended; return the number of instructions. Raises `Fault`."""
        if order not in ORDERS:
            raise ValueError(f"order is {order!r}, expected one of {', '.join(ORDERS)}")
        rng = rng or np.random.default_rng(0)
        with np.errstate(all="ignore"):
            while (self.state == RUNNING).any():
                waves = self._turn(order, rng)
                self._execute(waves)
        return self.executed

    def _turn(self, order: str, rng: np.random.Generator) -> np.ndarray:
        """Return the waves that go on next, all at the same instruction."""
        ready = np.flatnonzero(self.state == RUNNING)
        if order == "in turn":
            return ready[:1]
        if order == "in reverse":
            return ready[-1:]
        if order == "at random":
            there = ready[self.place[ready] == self.place[rng.choice(ready)]]
            chosen = there[rng.random(there.size) < 0.5]
            return chosen if chosen.size else there[:1]
        return ready[self.place[ready] == self.place[ready].min()]

    def _execute(self, waves: np.ndarray) -> None:
        """Execute one block, for waves that stand at its beginning."""
        block = self.blocks[int(self.place[waves[0]])]
        everyone = waves.size == self.num_waves
        group = Group(self.registers, slice(None) if everyone else waves, self)
        for execute, _ in block.steps:
            execute(group)
        self.executed += waves.size * (len(block.steps) + (block.branch is not None))
        self.place[waves] = block.following
        if block.branch is not None:
            self._leave(block.branch, waves, group, block.target)

    def _leave(self, branch: Instruction, waves: np.ndarray, group: Group, target: int) -> None:
        """Follow a branch, or wait at a barrier, or end."""
        if branch.name == "s_barrier":
            self.state[waves] = WAITING
            self._open_barriers(branch, waves)
        elif branch.name == "s_endpgm":
            self.state[waves] = ENDED
            self._open_barriers(branch, waves)
        else:
            self.place[waves[CONDITIONS[branch.name](group)]] = target

    def _open_barriers(self, instruction: Instruction, waves: np.ndarray) -> None:
        """Let programs go on whose waves all wait. Raises `Fault` if a wave has ended for which others wait."""
        state = self.state.reshape(-1, self.waves)
        for local in np.unique(self.local[waves]):
            waiting, ended = (state[local] == WAITING), (state[local] == ENDED)
            if waiting.all():
                state[local] = RUNNING
                self.phase.reshape(-1, self.waves)[local] += 1
            elif waiting.any() and ended.any():
                program = self.program[local * self.waves]
                raise Fault(
                    f"{self._place_of(instruction)}: in program {program} wave {np.argmax(ended)} has ended, "
                    f"and wave {np.argmax(waiting)} waits for it at a barrier"
                )

    # --- Memory ---------------------------------------------------------------------------------------------------

    def index(self, instruction: Instruction, group: Group, address: Any, on: Any, size: int) -> Any:
        """Return addresses as places in global memory. Raises `Fault` for one that is in no tensor."""
        index = np.where(on, address - self.memory_at, 0)
        stray = on & ((index < 0) | (index + size > self.memory.size))
        inside = np.where(stray, 0, index)
        first, last = self.owner[inside], self.owner[inside + size - 1]
        stray |= on & ((first == 0) | (first != last))
        if stray.any():
            wave, lane = (int(each[0]) for each in np.nonzero(stray))
            raise self.fault(instruction, group, wave, lane, f"touches {self._nearest(int(index[wave, lane]), size)}")
        return index

    def _nearest(self, index: int, size: int) -> str:
        """Describe the place of a stray access."""
        near = min(self.regions, key=lambda each: max(each.start - index, index - each.start - each.size + 1))
        byte = index - near.start
        if byte < 0:
            return f"{size} bytes that begin {-byte} before {near.name}"
        return f"bytes {byte} to {byte + size - 1} of {near.name}, which has {near.size}"

    def scalar_words(self, instruction: Instruction, group: Group, address: Any, count: int) -> list[Any]:
        """Load words for whole waves, from the arguments or from a tensor."""
        at = address - self.arguments_at
        if ((at >= 0) & (at + 4 * count <= self.arguments.nbytes)).all():
            return [self.arguments[(at >> 2) + i] for i in range(count)]
        on = np.zeros((group.count, LANES), bool)
        on[:, 0] = True
        index = self.index(instruction, group, np.broadcast_to(address[:, None], on.shape), on, 4 * count)
        access = memory.Access(instruction, next(kind for kind, size in SIZES.items() if size == 4 * count), "")
        memory.watched(access, group, self.memory, index, on, None)
        return self.memory.load(index[:, 0], 4 * count)

    def fault(
        self, instruction: Instruction, group: Group, wave: int, lane: int, why: str,
        memory: Memory | None = None, at: int = 0,
    ) -> Fault:  # fmt: skip
        """Make a `Fault` that names the instruction, the program, the wave and the lane; `wave` counts in the group."""
        number = int(np.arange(self.num_waves)[group.waves][wave])
        who = f"program {self.program[number]}, wave {self.wave[number]}, lane {lane}"
        if memory is self.memory and memory is not None:
            region = self.regions[int(self.owner[at]) - 1]
            why += f": byte {at - region.start} of {region.name}"
        elif memory is not None:
            why += f": byte {at - int(self.shared_base[number])} of {memory.what}"
        return Fault(f"{self._place_of(instruction)}: {who} {why}")

    def _place_of(self, instruction: Instruction) -> str:
        where = f"{instruction.source}, " if instruction.source else ""
        return f"{self.code.name}, {where}{instruction.text.split(';')[0].strip()!r}"


def _granule(program: Program, prefix: str) -> int:
    """Return the number of bytes that are watched together: that of the narrowest access."""
    sizes = [
        SIZES[found["type"]]
        for each in program.instructions
        if each.name.startswith(prefix) and (found := memory.ACCESS.fullmatch(each.name)) is not None
    ]
    return min([*sizes, 4])


def granule_of_tensors(program: Program) -> int:
    """Return the number of bytes of global memory that are watched together."""
    return min(_granule(program, prefix) for prefix in ("buffer_", "global_", "flat_"))


CONDITIONS: dict[str, Callable[[Group], Any]] = {
    "s_branch": lambda group: np.ones(group.count, bool),
    "s_cbranch_scc0": lambda group: ~group.scc[group.waves],
    "s_cbranch_scc1": lambda group: group.scc[group.waves],
    "s_cbranch_vccz": lambda group: group.scalar[VCC][group.waves] == 0,
    "s_cbranch_vccnz": lambda group: group.scalar[VCC][group.waves] != 0,
    "s_cbranch_execz": lambda group: group.scalar[EXEC][group.waves] == 0,
    "s_cbranch_execnz": lambda group: group.scalar[EXEC][group.waves] != 0,
}
"""For each branch a function that returns True for the waves that follow it."""
