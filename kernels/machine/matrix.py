"""Products of 16 × 16 matrices by a whole wave. Source: AMD, RDNA3 Instruction Set Architecture, §7.12 (WMMA)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .assembly import Instruction
from .numbers import widened
from .registers import Group, Step, constant, is_register, span

HALVES: dict[str, Callable[[Any], Any]] = {
    "v_wmma_f32_16x16x16_f16": lambda bits: bits.astype(np.uint16).view(np.float16).astype(np.float32),
    "v_wmma_f32_16x16x16_bf16": lambda bits: widened(bits.astype(np.uint16).astype(np.uint32)),
}


def step(instruction: Instruction) -> Step | None:
    """Return a function that executes `D = A B + C`, float32, A and B float16 or bfloat16; None for another kind.

    Lane l has row l % 16 of A and column l % 16 of B, two numbers in each register; register i of C and D has row
    2i + l // 16. All lanes take part, even those that are off. The manual leaves the order of adding open: here the
    products are added in float64, and rounded once.
    """
    if instruction.name not in HALVES:
        return None
    as_number = HALVES[instruction.name]
    into, a, b, c = instruction.operands
    first = span(into)[1]

    def matrix(text: str) -> Callable[[Group], Any]:
        start = span(text)[1]

        def read(group: Group) -> Any:  # (waves, 16, 16): a row of A, or a column of B, by lane
            words = group.vector[start : start + 8, group.waves, :16]  # (8, waves, 16)
            halves = np.stack([as_number(words), as_number(words >> np.uint32(16))], 1)  # (8, 2, waves, 16)
            return halves.reshape(16, group.count, 16).transpose(1, 2, 0)

        return read

    rows, columns = matrix(a), matrix(b)

    def execute(group: Group) -> None:
        product = rows(group).astype(np.float64) @ columns(group).astype(np.float64).swapaxes(1, 2)  # (waves, 16, 16)
        spread = product.reshape(-1, 8, 2, 16).transpose(1, 0, 2, 3).reshape(8, group.count, 32)
        if is_register(c):
            start = span(c)[1]
            total = spread + group.vector[start : start + 8, group.waves].view(np.float32)
        else:
            total = spread + constant(c, "f32")
        group.vector[first : first + 8, group.waves] = total.astype(np.float32).view(np.uint32)

    return execute
