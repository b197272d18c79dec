"""The ops of the textbook that each undo one step towards speed: the same results, by the straight road.

They swap into the same model one at a time, `dataclasses.replace(numpy_ops, **NAIVE[step])`, and so show what each
step is worth.
"""

from collections.abc import Callable
from typing import Any

from minitransformer.textbook import textbook_ops

OF_STEP = {
    "layernorm": "add_layernorm",
    "attention": "attention",
    "relu": "relu",
    "loss": "linear_cross_entropy",
    "embedding": "embedding",
}
"""The op that a step made faster."""

NAIVE: dict[str, dict[str, Callable[..., Any]]] = {
    step: {name: getattr(textbook_ops, name) for name in (f"{op}_forward", f"{op}_backward")}
    for step, op in OF_STEP.items()
}
NAIVE["adam"] = {"adam_step": textbook_ops.adam_step}
