"""One test body for every layer: `prove`, with its parameters among the arrays."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from support.prove import Proof, as_list, is_float, prove, read_only
from support.torch_twins import torch_layer

from minitransformer.layers import Context, FlatParameters, Layer
from minitransformer.ops import numpy_ops

ALREADY_THERE = 0.5
"""What every gradient holds before a backward, which must add to it."""

SAMPLES = 4
"""Coordinates of each array that are checked by differences; autograd sees to all of them, `check` does both."""


def placed(layer: Layer, dtype: Any = "float64", seed: int = 0) -> FlatParameters:
    """The layer's parameters in flat arrays, standard normal every one: no bias is 0 and no gamma 1.

    What is inside the layer gets its name, as in a model, and with it dropout of its own.
    """
    layer.name_layers()
    parameters = FlatParameters(dict(layer.named_parameters()), numpy_ops, dtype)
    rng = np.random.default_rng(seed)
    for parameter in parameters.named.values():
        parameter.data[...] = rng.standard_normal(parameter.shape)
    return parameters


def prove_layer(
    make: Callable[[], Any],
    inputs: Mapping[str, np.ndarray],
    proof: Proof,
    context: Context | None = None,
    *,
    component: str = "",
    call: Callable[..., tuple[Any, Any]] | None = None,
    back: Callable[..., Any] | None = None,
    oracle: Callable[..., torch.Tensor] | None = None,
) -> None:
    """Prove a layer right at `inputs` (float64): the gradient of every input and of every parameter.

    `make()` builds it. With a `context` it is called with that after its inputs; `memory`, or `keys` and `values`, are
    then the context's. `call(layer, *inputs)`, `back(layer, dout, cache)` and `oracle(weights, *inputs)` are given
    where they are not its `forward`, its `backward` and its twin. Beside what `prove` checks: a backward adds into the
    parameters' gradients, and nothing writes into their values.
    """
    values = placed(make()).state_dict()
    count = len(inputs)

    def handed(arrays: tuple) -> tuple[tuple, dict[str, Context]]:
        """Return the arguments that a layer is called with."""
        named = dict(zip(inputs, arrays, strict=False))
        if context is None:
            return tuple(named.values()), {}
        memory = (named.pop("keys"), named.pop("values")) if "keys" in named else named.pop("memory", None)
        return tuple(named.values()), {"context": replace(context, memory=memory)}

    def forward(*arrays: np.ndarray) -> tuple[Any, Any]:
        layer = make()
        parameters = placed(layer, next(a.dtype for a in arrays if is_float(a)))
        parameters.load_state_dict(dict(zip(values, arrays[count:], strict=True)))
        for parameter in parameters.named.values():
            read_only(parameter.data)
        positional, keywords = handed(arrays)
        out, cache = call(layer, *positional) if call else layer.forward(*positional, **keywords)
        return out, (layer, parameters, cache)

    def backward(dout: np.ndarray, cache: Any) -> tuple:
        layer, parameters, cache = cache
        parameters.grad[...] = ALREADY_THERE
        returned = as_list(back(layer, dout, cache) if back else layer.backward(dout, cache))
        parameters.grad[...] -= ALREADY_THERE
        dinputs = [gradient for gradient in returned if gradient is not None]  # None: there is no such input
        assert all(gradient is not None for gradient in returned[: len(dinputs)])  # and those come last
        return (*dinputs, *(parameter.grad.copy() for parameter in parameters.named.values()))

    def of_tensors(*tensors: torch.Tensor) -> torch.Tensor:
        weights = dict(zip(values, tensors[count:], strict=True))
        if oracle is not None:
            return oracle(weights, *tensors[:count])
        layer = make()
        layer.name_layers()
        positional, keywords = handed(tensors)
        return torch_layer(layer, weights, *positional, **keywords)

    arrays = {**inputs, **{name: value.copy() for name, value in values.items()}}
    prove(component or type(make()).__name__, forward, backward, of_tensors, arrays, proof, SAMPLES)
