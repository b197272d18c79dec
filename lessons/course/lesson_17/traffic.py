"""Count the bytes and the multiplications of PyTorch's operations without computing anything. Needs PyTorch."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FREE = {"_unsafe_view", "empty", "empty_like", "detach", "alias", "lift_fresh"}
"""Operations that, like all views, touch no memory."""
UNREAD = {"full_like", "zeros_like", "ones_like", "copy_", "fill_", "zero_"}
"""Operations that read no element of their first argument."""
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}


class Launches(TorchDispatchMode):
    """A context in which `found` collects, for each launch, (operations of a matrix product, bytes moved).

    On tensors of PyTorch's device "meta", which have shapes and no numbers, nothing is computed: the count takes no
    time, however large they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, float]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name in FREE:
            return out
        read = _tensors(args[1:] if name in UNREAD else (args, kwargs))
        moved = sum(map(_bytes, read)) + sum(map(_bytes, _tensors(out)))
        factors = [arg for arg in args if isinstance(arg, Tensor)][-2:]
        flops = 2.0 * math.prod(out.shape) * factors[0].shape[-1] if name.removesuffix("_") in PRODUCTS else 0.0
        self.found.append((flops, float(moved)))
        return out


def _tensors(tree: Any) -> Iterable[Tensor]:
    """Return each tensor once: `g * g` reads g once."""
    return {id(leaf): leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}.values()


def _bytes(tensor: Tensor) -> int:
    """The bytes that a tensor has in memory: an axis that is expanded is there once."""
    there = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return there * tensor.element_size() if tensor.numel() else 0


def launches(call: Callable[[], Any]) -> list[tuple[float, float]]:
    """(operations, bytes) of each launch of a call."""
    with Launches() as counted:
        call()
    return counted.found


Counted = dict[str, Sequence[tuple[float, float, float]]]
"""(operations, bytes, number of such launches), by the part of a step."""


def base_step() -> dict[str, Counted]:
    """A training step of the paper's base on 25,088 tokens a side, rung by rung of the ladder, without dropout.

    The rungs are those of `kernels.speedup`: PyTorch's arithmetic, and one kernel more at a time. What layers do
    between operations (copies of heads, sums of gradients) is in none of them.
    """
    from kernels import eager
    from minitransformer.costs import num_parameters
    from minitransformer.models import TransformerConfig

    sentences, length, config = 784, 32, TransformerConfig.base()
    C, F, V, H, D = config.d_model, config.d_ff, config.vocab_size, config.num_heads, config.key_width
    N, P = sentences * length, num_parameters(config)
    layers, heads, scores = config.num_layers, N * H * D, N * H * length

    def pair(op: str, *arrays: Tensor, **options: Any) -> list[tuple[float, float]]:
        forward, backward = getattr(eager, f"{op}_forward"), getattr(eager, f"{op}_backward")

        def call() -> None:
            y, cache = forward(*arrays, **options)
            backward(torch.empty_like(y) if y.ndim else 1.0, cache)

        return launches(call)

    x, wide = _half(sentences, length, C), _half(sentences, length, F)
    gamma = _half(C).float()
    query = _half(sentences, H, length, D)
    ids = torch.empty((sentences, length), dtype=torch.int64, device="meta")
    mask = torch.empty((sentences, length), dtype=torch.bool, device="meta")
    flat = [torch.empty(P, device="meta") for _ in range(4)]

    linears = [(C, 3 * C, 2), (C, C, 4), (C, 2 * C, 1), (C, F, 2), (F, C, 2)]  # in, out, how many a pair of layers
    products = []
    for width_in, width_out, count in linears:
        before = wide if width_in == F else x
        products += layers * count * pair("linear", before, _half(width_in, width_out), _half(width_out))
    unfused = layers * (2 * pair("attention", query, query, query, key_mask=mask))
    unfused += layers * pair("attention", query, query, query, key_mask=mask, causal=True)
    softmax = 3 * layers * pair("softmax", _half(sentences, H, length, length))
    rest = [*softmax]
    composed = [launch for launch in unfused if not (launch in rest and rest.remove(launch) is None)]

    first: Counted = {
        "linear layers": _merged(products),
        "attention": _merged(unfused),
        "add & norm": _merged(5 * layers * pair("add_layernorm", x, x, gamma, gamma)),
        "output layer and loss": _merged(
            pair("linear_cross_entropy", x.reshape(N, C), _half(V, C), ids.reshape(N), label_smoothing=0.1)
        ),
        "Adam": _merged(
            launches(lambda: eager.adam_step(*flat, step=3, lr=1e-4, beta1=0.9, beta2=0.98, eps=1e-9, shadow=_half(P)))
        ),
        "embedding, relu": _merged(2 * layers * pair("relu", wide) + 2 * pair("embedding", ids, _half(V, C))),
    }
    one_pass = [(0.0, 2.0 * 2 * scores, 3 * layers), (0.0, 3.0 * 2 * scores, 3 * layers)]
    product = 2.0 * heads * length
    fused = [
        (2 * product, 2.0 * 4 * heads + 4 * heads / D, 3 * layers),  # query, key, value → out, log-sum-exp
        (0.0, 2.0 * 2 * heads, 3 * layers),  # out, dout → delta
        (3 * product, 2.0 * 5 * heads, 3 * layers),  # query, key, value, dout → dquery
        (4 * product, 2.0 * 6 * heads, 3 * layers),  # the same → dkey, dvalue
    ]
    chunk = 2**26 // V
    chunks = N / chunk
    loss = [
        (2.0 * chunk * C * V, 2.0 * (chunk * C + V * C + chunk * V), chunks),  # x, table → logits
        (0.0, 2.0 * 3 * chunk * V, chunks),  # logits, twice → dlogits
        (2.0 * chunk * C * V, 2.0 * (chunk * V + V * C + chunk * C), chunks),  # dlogits, table → dx
        (2.0 * chunk * C * V, 2.0 * (chunk * V + chunk * C) + 8.0 * V * C, chunks),  # dlogits, x → dtable, added
    ]
    changes: dict[str, Counted] = {
        "torch arithmetic": {},
        "+ Triton softmax": {"attention": _merged(composed) + one_pass},
        "+ flash attention": {"attention": fused},
        "+ add_layernorm": {"add & norm": [(0.0, 2.0 * 3 * N * C, 5 * layers), (0.0, 2.0 * 4 * N * C, 5 * layers)]},
        "+ linear_cross_entropy": {"output layer and loss": loss},
        "+ Adam": {"Adam": [(0.0, 30.0 * P, 1)]},
        "+ embedding, dropout, relu": {
            "embedding, relu": [
                (0.0, 2.0 * 2 * N * F, 2 * layers),
                (0.0, 2.0 * 3 * N * F, 2 * layers),
                (0.0, 2.0 * 2 * N * C, 2),
                (0.0, 2.0 * N * C + 8.0 * min(N, V) * C, 2),
            ]
        },
    }
    rungs, step = {}, first
    for name, change in changes.items():
        rungs[name] = step = step | change
    return rungs


def _half(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def _merged(found: list[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """Merge equal launches."""
    return [(flops, moved, found.count((flops, moved))) for flops, moved in dict.fromkeys(found)]
