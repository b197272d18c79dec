"""One test body for every layer: `prove`, with its parameters among the arrays."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from support.prove import Proof, as_list, is_float, prove, read_only

from minitransformer.layers import FlatParameters, Layer
from minitransformer.ops import numpy_ops

ALREADY_THERE = 0.5
"""What every gradient holds before a backward, which must add to it."""


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
    component: str,
    make: Callable[[], Layer],
    inputs: Mapping[str, np.ndarray],
    oracle: Callable[..., torch.Tensor],
    proof: Proof,
    call: Callable[..., tuple[Any, Any]] | None = None,
    back: Callable[..., Any] | None = None,
) -> None:
    """Prove a layer right at `inputs` (float64): the gradient of every input and of every parameter.

    `make()` builds it, `oracle(weights, *inputs)` is the same over tensors. `call(layer, *inputs)` and
    `back(layer, dout, cache)` are its `forward` and `backward` unless they are given. Beside what `prove` checks:
    a backward adds into the parameters' gradients, and nothing writes into their values.
    """
    call = call or (lambda layer, *inputs: layer.forward(*inputs))
    back = back or (lambda layer, dout, cache: layer.backward(dout, cache))
    values = placed(make()).state_dict()
    count = len(inputs)

    def forward(*arrays: np.ndarray) -> tuple[Any, Any]:
        layer = make()
        parameters = placed(layer, next(a.dtype for a in arrays if is_float(a)))
        parameters.load_state_dict(dict(zip(values, arrays[count:], strict=True)))
        for parameter in parameters.named.values():
            read_only(parameter.data)
        out, cache = call(layer, *arrays[:count])
        return out, (layer, parameters, cache)

    def backward(dout: np.ndarray, cache: Any) -> tuple:
        layer, parameters, cache = cache
        parameters.grad[...] = ALREADY_THERE
        dinputs = back(layer, dout, cache)
        parameters.grad[...] -= ALREADY_THERE
        dparameters = [parameter.grad.copy() for parameter in parameters.named.values()]
        return (*(() if dinputs is None else as_list(dinputs)), *dparameters)

    def of_tensors(*tensors: torch.Tensor) -> torch.Tensor:
        return oracle(dict(zip(values, tensors[count:], strict=True)), *tensors[:count])

    prove(component, forward, backward, of_tensors, {**inputs, **{n: v.copy() for n, v in values.items()}}, proof)
