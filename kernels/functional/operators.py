"""A pair as an operator of PyTorch: autograd calls its backward, and `torch.compile` sees it as one node.

An operator's inputs and outputs are tensors and numbers, but a pair's cache is any Python value. So the forward
returns, beside its output, only those tensors of the cache that are expensive to make again (`Kept`), and the backward,
an operator too, makes the cache from them and from the inputs. A pair without a `Kept` runs its forward again.

An operator of `torch.library` takes the host 0.3 ms and 250 Python calls beside the pair's own. So if nothing is
traced, and no mode and no subclass of `Tensor` must see it, the same pair runs in a `torch.autograd.Function`.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

import kernels
from minitransformer.ops import Dropout, Pair

from .. import eager
from ..availability import interpreting
from ..checks import FLOAT_DTYPES

P = ParamSpec("P")
R = TypeVar("R")
Arguments = tuple[Any, ...]
KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HAS_TRITON = find_spec("triton") is not None


@dataclass(frozen=True)
class Kept:
    """The tensors that a pair's forward passes to its backward, beside the inputs.

    tensors  takes them out of a cache
    like     makes empty ones of the same shapes from the inputs: `torch.compile` traces with these
    cache    makes the cache from (kept tensors, *inputs); with `and_output` the output is the first of them
    """

    tensors: Callable[[Any], list[Tensor]]
    like: Callable[..., list[Tensor]]
    cache: Callable[..., Any]
    and_output: bool = False


RECEIVED = object()
"""Saved in the place of an input of which only shape and dtype are needed: the received gradient has the same."""

NOTHING = Kept(lambda cache: [], lambda *inputs: [], lambda kept, *inputs: None)


def runs_in_triton(name: str, x: Tensor) -> bool:
    """Return True if the op has a kernel that can run here on such a tensor."""
    there = x.dtype in KERNEL_DTYPES and name in kernels.KERNELS and HAS_TRITON
    if x.is_cuda and x.dtype != torch.bfloat16:
        return there
    return there and (x.dtype != torch.bfloat16 and x.device.type == "cpu" if interpreting() else x.is_cuda)


def runs_in_torch(x: Tensor) -> bool:
    """Return True if `torch.nn.functional` should run: no kernel can, and the interpreter is off."""
    return not (x.is_cuda and HAS_TRITON) and not interpreting() and x.dtype in FLOAT_DTYPES


def owned(x: Tensor) -> Tensor:
    """Return x contiguous and in memory of its own: PyTorch lets no two outputs of an operator share memory."""
    alone = x.untyped_storage().nbytes() == x.numel() * x.element_size()
    return x.contiguous() if alone else x.clone(memory_format=torch.contiguous_format)


def heads_merge(x: Tensor) -> Tensor:
    """Return x `(B, H, T, D)` with `(B, T, H, D)` in memory, so that merging its heads is a view; a copy if needed."""
    return x.transpose(1, 2).contiguous().transpose(1, 2) if x.ndim == 4 else x.contiguous()


def operator(
    name: str,
    schema: str,
    differentiable: Sequence[str],
    output: Callable[..., Tensor],
    *,
    kernel: str | None = None,
    pair_of: Callable[[Pair], Pair] | None = None,
    kept: dict[str, Callable[[], Kept]] | None = None,
    call: Callable[..., tuple[Arguments, dict[str, Any]]] = lambda *inputs: (inputs, {}),
    saved: Callable[..., Arguments] = lambda out, *inputs: inputs,
    layout: Callable[[Tensor], Tensor] = owned,
) -> Callable[..., Any]:
    """Register `minitransformer::name` and `minitransformer::name_backward`; return a function of the inputs.

    With `with_kept` the function also returns the kept tensors, after the output; they have no gradient.

    name            the pair's name in `kernels` and in `kernels.eager`; the first input decides which of them runs
    kernel          the pair's name, if it differs from the operator's
    pair_of         makes the pair from the package's own, if it differs
    schema          the inputs' types and names, as in `torch.library`
    differentiable  the names of the inputs that the pair's backward has gradients for, in its order
    output          makes an empty output from the inputs
    kept            by backend, "triton" or "eager": a function that returns a `Kept`
    call            returns the arguments and options of the pair's forward from the inputs
    saved           returns the values to save in the place of the inputs: tensors, numbers or `RECEIVED`
    layout          brings a tensor into the layout in memory that outputs and gradients always have
    """
    names = [argument.split()[1] for argument in schema.split(", ")]
    places = [names.index(each) for each in differentiable]

    @cache
    def of(where: str) -> tuple[Pair, Kept | None]:
        package, op = kernels if where == "triton" else eager, kernel or name
        own = Pair(getattr(package, f"{op}_forward"), getattr(package, f"{op}_backward"))
        pair = own if pair_of is None else pair_of(own)
        return pair, kept[where]() if kept and where in kept else None

    def backend(x: Tensor) -> tuple[Pair, Kept | None]:
        return of("triton" if runs_in_triton(kernel or name, x) else "eager")

    def forward(*inputs: Any) -> list[Tensor]:
        pair, keep = backend(inputs[0])
        arguments, options = call(*inputs)
        with without_autocast(inputs[0]):
            out, cache = pair.forward(*arguments, **options)
            return [layout(out).detach(), *(keep or NOTHING).tensors(cache)]  # no view: it may be changed in place

    def traced_forward(*inputs: Any) -> list[Tensor]:
        return [layout(output(*inputs)), *(backend(inputs[0])[1] or NOTHING).like(*inputs)]

    def backward(dout: Tensor, tensors: list[Tensor], *inputs: Any) -> list[Tensor]:
        pair, keep = backend(inputs[0])
        arguments, options = call(*inputs)
        with without_autocast(inputs[0]):
            cache = keep.cache(tensors, *inputs) if keep else pair.forward(*arguments, **options)[1]
            gradients = pair.backward(dout, cache)
        found: dict[int, Tensor] = {}
        for gradient in gradients if isinstance(gradients, tuple) else (gradients,):
            if gradient is not None:  # a sum's two gradients may be one tensor, but no two outputs may share memory
                again = gradient.data_ptr() in found
                gradient = gradient.clone() if again else gradient
                found[gradient.data_ptr() or -len(found)] = gradient  # empty tensors all have the address 0
        return list(found.values())

    def laid_out_backward(dout: Tensor, tensors: list[Tensor], *inputs: Any) -> list[Tensor]:
        with torch.no_grad():
            return [layout(gradient) for gradient in backward(dout, tensors, *inputs)]

    def traced_backward(dout: Tensor, tensors: list[Tensor], *inputs: Any) -> list[Tensor]:
        given = (inputs[place] for place in places)
        return [layout(x.new_empty(x.shape)) for x in given if x is not None]

    def save(ctx: Any, inputs: Arguments, output: list[Tensor]) -> None:
        keep = backend(inputs[0])[1] or NOTHING
        tensors, values = output if keep.and_output else output[1:], saved(output[0], *inputs)
        ctx.num_kept = len(tensors)
        ctx.numbers = {place: value for place, value in enumerate(values) if not isinstance(value, Tensor)}
        ctx.save_for_backward(*tensors, *[value for value in values if isinstance(value, Tensor)])

    def differentiate(ctx: Any, received: list[Tensor | None]) -> Arguments:
        found: list[Tensor | None] = [None] * len(names)
        if received[0] is not None:
            seen = is_seen(name, received[0])
            saved_tensors = ctx.saved_tensors  # read once: under checkpointing a second read is refused
            tensors, given = saved_tensors[: ctx.num_kept], iter(saved_tensors[ctx.num_kept :])
            inputs = [ctx.numbers[place] if place in ctx.numbers else next(given) for place in range(len(names))]
            inputs = [received[0] if value is RECEIVED else value for value in inputs]
            if seen:
                gradients = iter(backward_operator(received[0], list(tensors), *inputs))
            elif torch.is_grad_enabled():  # by create_graph=True
                run = partial(backward, received[0], list(tensors), *inputs)
                gradients = iter(unseen_backward.apply(run, received[0], *tensors, *inputs))
            else:
                gradients = iter(backward(received[0], list(tensors), *inputs))
            for place in places:
                found[place] = None if inputs[place] is None else next(gradients)
        return tuple(found)

    def refuse(ctx: Any, *received: Any) -> None:
        raise RuntimeError(f"{name}: the gradient of a gradient is asked for, and a pair has no second backward")

    custom_op, qualified = partial(torch.library.custom_op, mutates_args=()), f"minitransformer::{name}"
    forward_operator = custom_op(qualified, torch.no_grad()(forward), schema=f"({schema}) -> Tensor[]")
    forward_operator.register_fake(traced_forward)
    forward_operator.register_autograd(differentiate, setup_context=save)
    gradients_schema = f"(Tensor dout, Tensor[] kept, {schema}) -> Tensor[]"
    backward_operator = custom_op(f"{qualified}_backward", laid_out_backward, schema=gradients_schema)
    backward_operator.register_fake(traced_backward)
    backward_operator.register_autograd(refuse)

    def unseen_forward(ctx: Any, *inputs: Any) -> Tensor:
        found = forward(*inputs)
        save(ctx, inputs, found)
        return found[0]

    def as_function(qualified: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type(qualified, (torch.autograd.Function,), methods)

    def unseen_forward_with_kept(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        found = forward(*inputs)
        save(ctx, inputs, found)
        ctx.mark_non_differentiable(*found[1:])
        return tuple(found)

    unseen = as_function(qualified, unseen_forward, lambda ctx, received: differentiate(ctx, [received]))
    unseen_with_kept = as_function(
        qualified, unseen_forward_with_kept, lambda ctx, received, *_: differentiate(ctx, [received])
    )
    unseen_backward = as_function(f"{qualified}_backward", lambda ctx, run, *given: tuple(run()), refuse)

    def function(*inputs: Any, with_kept: bool = False) -> Any:
        if forward_ad._current_level >= 0 and any(
            isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None for value in inputs
        ):
            raise RuntimeError(f"{name}: a derivative in forward mode is asked for, and a pair has only a backward")
        if is_seen(name, *inputs):
            out, *more = forward_operator(*inputs)
            return (out, *(x.detach() for x in more)) if with_kept else out
        if not torch.is_grad_enabled():
            return forward(*inputs) if with_kept else forward(*inputs)[0]
        return unseen_with_kept.apply(*inputs) if with_kept else unseen.apply(*inputs)

    return function


def is_seen(name: str, *inputs: Any) -> bool:
    """Return True if a tracer, a mode or a subclass of `Tensor` must see the operator and not its inner operations.

    Raises `RuntimeError` under a transform of torch.func, and if autograd takes many gradients at once.
    """
    if torch.compiler.is_compiling():
        return True
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    if functorch.peek_interpreter_stack() is not None or functorch.is_legacy_batchedtensor(inputs[0]):
        raise RuntimeError(
            f"{name}: a transform of torch.func's (vmap, grad, jacrev, …) is asked for, and a pair has none: "
            "take gradients one at a time with backward(), or call torch.nn.functional there"
        )
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return True
    for value in inputs:  # a loop: a generator would be a Python call for each of them
        if isinstance(value, Tensor) and type(value) is not Tensor and type(value) is not torch.nn.Parameter:
            return True
    return False


def named(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse an argument that it does not have by a sentence with those that it has."""
    names = inspect.signature(function).parameters

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in names:
                raise TypeError(f"{function.__name__} has no argument {name!r}: it takes {', '.join(names)}")
        return function(*args, **options)

    return checked


# --- Dropout ---------------------------------------------------------------------------------------------------


def draw_key(x: Tensor, dropout_p: float) -> Tensor | None:
    """Draw the key of a dropout mask from PyTorch's generator; return None if nothing is dropped."""
    drops = dropout_p != 0 and Dropout(dropout_p, key=0).threshold > 0
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=x.device) if drops else None


def dropout_of(key: Tensor | None, dropout_p: float) -> Dropout | None:
    """Return the `Dropout` of a pair for this key, `None` for none."""
    return None if key is None else Dropout(dropout_p, key=key)


# --- Types ----------------------------------------------------------------------------------------------------


def promoted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the dtype of `x + y`: under autocast one of them may come from a product and the other not."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def in_autocast_dtype(*tensors: Tensor | None) -> list[Any]:
    """Return the floating tensors in autocast's dtype if it is on, as PyTorch does for products."""
    return _cast(tensors, lambda kind: torch.get_autocast_dtype(kind))


def in_float32(*tensors: Tensor | None) -> list[Any]:
    """Return the floating tensors in float32 if a GPU's autocast is on, as PyTorch does for norms, softmax, losses."""
    return _cast(tensors, lambda kind: None if kind == "cpu" else torch.float32)


UNCHANGED = nullcontext()


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off: the inputs have their dtypes already, and a pair's float32 products must stay float32."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if _autocasts(kind) else UNCHANGED


def _autocasts(kind: str) -> bool:
    return kind != "meta" and torch.is_autocast_enabled(kind)


def _cast(tensors: Sequence[Tensor | None], dtype_for: Callable[[str], torch.dtype | None]) -> list[Any]:
    for tensor in tensors:
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    kind = tensors[0].device.type  # pyright: ignore[reportOptionalMemberAccess] - only what follows may be None
    dtype = dtype_for(kind) if _autocasts(kind) else None
    if dtype is None:
        return list(tensors)
    return [tensor if tensor is None or tensor.dtype not in KERNEL_DTYPES else tensor.to(dtype) for tensor in tensors]
