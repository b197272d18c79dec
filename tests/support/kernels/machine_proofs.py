"""Proofs of kernels as machine code, in a process of its own: `python machine_proofs.py WHAT` prints what it found."""

import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from kernels.machine import ORDERS, Emulation, Fault, emulating, proof
from kernels.proof import checks, ledger

SOME = ("softmax", "layernorm", "cross_entropy", "attention")
"""Ops whose barriers are left out: those that hand numbers from wave to wave."""


def sample(count: str) -> list[str]:
    """Prove some pairs of an op and a dtype."""
    return [f"{pair} {proof.prove(pair)['assembly']}" for pair in proof.sample(int(count))]


def stale() -> list[str]:
    """The pairs whose instructions are not in the manifest."""
    return [str(pair) for pair in proof.stale(ledger.manifest())]


def results(op: str, dtype: torch.dtype, **how: Any) -> tuple[list[torch.Tensor], Emulation]:
    """Everything that an op computes in its first case."""
    with emulating(**how) as emulation, checks.poisoned():
        return checks.launched(op, next(checks.chosen(op, dtype)), dtype, "cpu"), emulation


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """Return True if all bits are equal, NaN's too."""
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(*(x.flatten().contiguous().view(torch.uint8) for x in pair)) for pair in pairs)


def orders(op: str) -> list[str]:
    """The orders in which an op computes other bits."""
    wrong = []
    for dtype in (torch.float32, torch.bfloat16):
        expected, _ = results(op, dtype)
        wrong += [f"{dtype}, {order}" for order in ORDERS[1:] if not same(results(op, dtype, order=order)[0], expected)]
    return wrong


def with_barrier(number: int, as_what: str) -> Callable[[str], str]:
    """Writes something else for the barrier of this number, in every kernel that has so many."""

    def rewrite(assembly: str) -> str:
        places = [found.span() for found in re.finditer(r"^\ts_barrier$", assembly, re.M)]
        if number >= len(places):
            return assembly
        start, stop = places[number]
        return assembly[:start] + as_what + assembly[stop:]

    return rewrite


def barriers() -> dict[str, int]:
    """Count the barriers that were left out, those of them that were noticed, and how often unnoticed bits were others.

    Barriers that no wave comes by do not count: a kernel may end there, and nothing changes.
    """
    found = {"left out": 0, "noticed": 0, "other bits": 0}
    for op in SOME:
        expected, emulation = results(op, torch.float32)
        programs = [launch.program for launch in emulation.launches]
        for number in range(max(sum(each.name == "s_barrier" for each in one.instructions) for one in programs)):
            if _changed(op, with_barrier(number, "\ts_endpgm"), ORDERS[:1], expected) == (False, False):
                continue
            found["left out"] += 1
            noticed, others = _changed(op, with_barrier(number, ""), ORDERS, expected)
            found["noticed"] += noticed
            found["other bits"] += others
    return found


def _changed(op: str, rewrite: Callable[[str], str], orders: tuple[str, ...], expected: list) -> tuple[bool, bool]:
    """Return True if a fault is found; and if not, True if other bits are computed."""
    for order in orders:
        try:
            computed, _ = results(op, torch.float32, order=order, rewrite=rewrite)
        except Fault:
            return True, False
        if not same(computed, expected):
            return False, True
    return False, False


def hoppers() -> list[str]:
    """Prove what no tile of a gfx1100 uses by itself: attention's descriptors, and softmax's loop over rows.

    Returns how many kernels were launched each time.
    """
    from kernels import softmax
    from kernels.attention import tiles

    candidates = tiles.candidates

    def described(name: str, *arguments: Any) -> list[Any]:
        return [tile._replace(descriptors=name == "forward") for tile in candidates(name, *arguments)]

    found = []
    names = "one query of many keys", "everything", "everything, 20 and 5 wide"
    with patch.object(tiles, "candidates", described), patch.object(softmax, "SEVERAL", 1):
        for op, dtype, wanted in (("attention", torch.bfloat16, names), ("softmax", torch.float16, ())):
            with emulating() as emulation, proof.one_thread():
                some = (case for case in checks.chosen(op, dtype) if not wanted or case.name in wanted)
                checks.check(op, dtype, some=some)
            found.append(f"{op}: {len(emulation.launches)}")
    return found


def minimal() -> list[float]:
    """The worst errors of the minimal attention in float16 and bfloat16, causal, its last block not whole."""
    from kernels.attention.minimal import attention_minimal

    errors = []
    for dtype in (torch.float16, torch.bfloat16):
        inputs = [torch.randn(1, 2, 37, 16, generator=torch.Generator().manual_seed(n)).to(dtype) for n in range(3)]
        with emulating():
            out = attention_minimal(*inputs, causal=True, block=16)
        query, key, value = (x.double() for x in inputs)
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        errors.append(float((out.double() - expected).abs().max()))
    return errors


def packed() -> dict[str, tuple[list[float], float]]:
    """Attention of packed sentences in float16 and bfloat16: errors of the output, the log-sum-exps and the gradients.

    Beside what each may be off by: twice the rounding of the largest number.
    """
    import kernels
    from kernels.eager.packed import Packed, packed_attention, packed_lse

    starts, key_starts = (torch.tensor([0, *each]).int() for each in ([20, 20, 21, 58], [7, 40, 40, 73]))
    found, options = {}, {"causal": True, "window": (20, None), "softcap": 2.0, "slopes": torch.rand(4, 4)}
    sentences = Packed(starts, key_starts, 37, 33)
    for dtype in (torch.float16, torch.bfloat16):
        generator = torch.Generator().manual_seed(0)
        shapes = (1, 4, 58, 32), (1, 2, 73, 32), (1, 2, 73, 16), (1, 4, 58, 16)
        *inputs, received = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
        with emulating(), checks.poisoned():
            out, cache = kernels.attention_forward(*inputs, packed=sentences, **options)
            ours = [out, *kernels.attention_backward(received, cache), cache[5] * math.log(2)]
        *inputs, received = (x.double() for x in (*inputs, received))
        out, cache = packed_attention.forward(*inputs, packed=sentences, **options)
        lse = packed_lse(*inputs[:2], packed=sentences, scale=32**-0.5, **options)
        theirs = [out, *packed_attention.backward(received, cache), lse]
        pairs = ((each.double(), wanted) for each, wanted in zip(ours, theirs, strict=True))
        errors = [float(torch.where(each == wanted, 0, each - wanted).abs().max()) for each, wanted in pairs]
        found[str(dtype)] = errors, 2 * torch.finfo(dtype).eps * max(float(x.abs().max()) for x in theirs[:4])
    return found


def z_loss() -> dict[str, list[float]]:
    """Both losses with a z-loss: errors of loss and gradients, as multiples of the largest number's rounding."""
    import kernels

    found, targets = {}, torch.arange(200) % 30  # so many rows that lanes would disagree about an unrounded product
    targets[::7] = -100
    options: dict[str, Any] = {"label_smoothing": 0.1, "ignore_index": -100, "z_loss": 0.1}
    for dtype in (torch.float16, torch.bfloat16):
        generator = torch.Generator().manual_seed(0)
        x, table = (torch.randn(n, 16, generator=generator).to(dtype) for n in (200, 30))
        logits = x @ table.T
        with emulating(), checks.poisoned():
            loss, cache = kernels.cross_entropy_forward(logits, targets, **options)
            fused, fused_cache = kernels.linear_cross_entropy_forward(x, table, targets, **options)
            ours = [loss, kernels.cross_entropy_backward(1.0, cache)]
            ours += [fused, *kernels.linear_cross_entropy_backward(1.0, fused_cache)]
        wide = [each.double().requires_grad_() for each in (logits, x, table)]
        theirs = []
        for scores, leaves in ((wide[0], wide[:1]), (wide[1] @ wide[2].T, wide[1:])):
            each = torch.nn.functional.cross_entropy(scores, targets, label_smoothing=0.1, reduction="none")
            wanted = (each + 0.1 * (targets != -100) * scores.logsumexp(-1) ** 2).sum() / (targets != -100).sum()
            theirs += [wanted.detach(), *torch.autograd.grad(wanted, leaves)]
        eps, pairs = torch.finfo(dtype).eps, zip(ours, theirs, strict=True)
        found[str(dtype)] = [float((a.double() - b).abs().max() / b.abs().max() / eps) for a, b in pairs]
    return found


WHAT: dict[str, Callable[..., Any]] = {
    "sample": sample,
    "hoppers": hoppers,
    "stale": stale,
    "orders": orders,
    "barriers": barriers,
    "minimal": minimal,
    "packed": packed,
    "z_loss": z_loss,
}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](*sys.argv[2:])))
