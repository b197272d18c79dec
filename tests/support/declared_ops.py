"""Every op with arguments that fit it, drawn from its declaration: what tests of refusals spoil one by one."""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from minitransformer import ops
from minitransformer.check import random_arguments
from minitransformer.ops.arguments import Declaration

SIZES: dict[str, Any] = {
    "...": (2,), "B": 1, "H": 1, "Hk": 1, "T": 2, "Tq": 2, "Tk": 2, "D": 3, "Dv": 3, "C": 3, "C_in": 3, "C_out": 5,
    "K": 2, "F": 3, "N": 2, "P": 4, "R/2": 1, "V": 4, "n": 3, "channels": 2, "height": 2, "width": 4,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "patches_forward": {"size": 2},
    "dropout_forward": {"dropout": ops.Dropout(0.5, key=1)},
    "attention_mask": {"num_queries": 2, "num_keys": 2, "causal": True, "window": None},
    "adam_step": {"step": 1, "lr": 0.1},
    "topk": {"k": 2},
    "quantize": {"group": 1},
}


class Call(NamedTuple):
    """A function with arguments that it takes; those in `optional` may be None."""

    function: Callable[..., Any]
    arrays: dict[str, Any]
    optional: tuple[str, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012 - never written
    declaration: Declaration | None = None

    def __call__(self, **replaced: Any) -> Any:
        return self.function(**{**self.arrays, **self.options, **replaced})


def forwards(sizes: dict[str, Any] = {}, dtype: str = "float64") -> dict[str, Call]:  # noqa: B006 - never written
    """Every function of `minitransformer.ops` with a declaration; `sizes` beside those of `SIZES`."""
    calls = {}
    for name, function in vars(ops).items():
        declaration: Declaration | None = getattr(function, "declaration", None)
        if declaration is not None:
            arrays = random_arguments(declaration, SIZES | sizes, np.random.default_rng(0), dtype)
            if name == "adam_step":  # a mean of squares
                arrays["v"] = abs(arrays["v"])
            optional = tuple(argument.name for argument in declaration.arrays if argument.optional)
            calls[name] = Call(function, arrays, optional, OPTIONS.get(name, {}), declaration)
    return calls


def backwards() -> dict[str, Call]:
    """Every backward after its forward, with a gradient that fits."""
    calls = {}
    for name, forward in forwards().items():
        backward = getattr(ops, name.replace("_forward", "_backward"))
        if backward is not forward.function:
            out, cache = forward()
            received = next(iter(backward.__annotations__))
            calls[name] = Call(backward, {received: np.ones_like(out)}, options={"cache": cache})
    return calls


def declaration_of(op: str) -> Declaration:
    """Return the declaration of the forward of a pair."""
    return vars(getattr(ops, f"{op}_forward"))["declaration"]


def options_of(op: str) -> set[str]:
    """Return the names of a pair's options, but `with_grad`, which changes no result."""
    arrays = {argument.name for argument in declaration_of(op).arrays}
    return set(signature(getattr(ops, f"{op}_forward")).parameters) - arrays - {"with_grad"}
