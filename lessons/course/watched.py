"""What judges of kernels ask of what the fence saw."""

from typing import Any

from .fence import Seen
from .judging import require as must


def stays_inside(seen: Seen, where: str) -> None:
    """What is right in the interpreter, where one program comes after the other, may be luck."""
    must(
        not seen.stores,
        f"{where} it is right, but the kernel also writes where there is no array ({seen.stores} lanes, stopped here; "
        "on a GPU somebody else's memory is overwritten): tl.store wants the mask too",
    )
    must(
        not seen.loads,
        f"{where} it is right, but the kernel also reads where there is no array ({seen.loads} lanes, stopped here; a "
        "GPU may crash): tl.load wants the mask too",
    )
    must(
        not seen.races,
        f"{where} it is right, but a program reads or writes what another has written ({seen.races} lanes): on a GPU "
        "they run side by side, and who comes first is chance. Each program writes places of its own",
    )
    must(
        not seen.atomics,
        f"{where} it is right, but it adds with atomic operations: their order is chance, and the sum's last bits with "
        "it. Each program writes its sum to a row of its own",
    )


def multiplies_in_float32(seen: Seen) -> None:
    """The interpreter never rounds what it multiplies."""
    must(
        not seen.rounded,
        'here it is right, but a tl.dot lacks input_precision="ieee": an A100 and later then round the float32 numbers '
        "that they multiply to 10 bits of fraction, and are off by about 1e-3",
    )


def works_alone(seen: Seen, kernel: str, at_most: int, work: str) -> None:
    """The kernel must have been launched for this work, and not over and over."""
    must(
        seen.programs,
        "the numbers are right, and no kernel was launched: PyTorch computed them, array after array through memory. "
        f"Write {kernel}, and launch it, {kernel}[(programs,)](…)",
    )
    must(
        not seen.interpreted or len(seen.programs) <= at_most,
        f"for {work} kernels were launched {len(seen.programs)} times: one launch has a grid of programs, "
        f"{kernel}[(programs,)](…), which run side by side",
    )


def each_once(seen: Seen, **arrays: tuple[str, Any]) -> None:
    """Kernels must have read, or written, each number of each array once."""
    for name, (way, array) in arrays.items() if seen.interpreted else ():
        lanes = getattr(seen, way)(array)
        must(
            lanes >= array.numel(),
            f"the numbers are right, but kernels have {way} {lanes:,} of the {array.numel():,} numbers of {name}: an "
            "operation of PyTorch before or after the kernel is one more pass through memory",
        )
        must(
            lanes <= array.numel(),
            f"the numbers are right, but each number of {name} is {way} {lanes / array.numel():.3g} times: keep what "
            "is loaded, store only what is final. The reason for a kernel is that it passes over memory once",
        )


def unwritten(seen: Seen, array: Any) -> bool:
    """Whether kernels wrote a part of an array, and left out the rest, which holds anything."""
    return 0 < seen.written(array) < array.numel()
