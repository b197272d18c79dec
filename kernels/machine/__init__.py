"""Runs kernels as machine code on a CPU: Triton's code for AMD's gfx1100, instruction by instruction.

Triton's interpreter runs programs one after the other on whole tiles, so it can't show the work of the compiler:
barriers, shared memory, numbers passed from thread to thread, products fused with sums. Here the assembly itself is
executed in NumPy, and every access to memory is watched. Faults are two waves on one byte without a barrier between,
two programs on one byte that one of them writes, lanes that disagree about a store, accesses outside the tensors, and
barriers that not all waves reach. Registers and shared memory begin as NaN.

    import torch, kernels
    from kernels.machine import emulating
    with emulating():
        y, cache = kernels.softmax_forward(torch.randn(3, 100))

No GPU is needed. Waves that stand at the same instruction execute it together (see `execute`), as arrays
`(waves, lanes)`, so an instruction costs a few microseconds for all of them. Not emulated are time (waits, caches, the
order in which memory answers), atomics, and rounding modes other than to nearest. `exp2`, `log2` and the reciprocals
are rounded correctly; the hardware may be off by one unit.

Source: AMD, "RDNA3 Instruction Set Architecture Reference Guide", 2023.
"""

from .assembly import Unknown
from .execute import ORDERS
from .launch import Emulation, Launch, emulating
from .watch import Fault

__all__ = ["ORDERS", "Emulation", "Fault", "Launch", "Unknown", "emulating"]
