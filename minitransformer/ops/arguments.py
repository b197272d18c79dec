"""Declares in one line above an op which arguments it takes; the line documents the op and checks every call.

    @arguments("x ... C≥1, gamma C, beta C", eps=check_not_negative)
    def layernorm_forward(x, gamma, beta, eps=1e-5): ...

The line names the arrays, each with its axes. All have one type, float32 or float64, except `ids<V` (integers; the op
itself checks that they are 0 … V − 1) and `mask:bool`. `bias?` may be `None`; `cos:fixed` has no gradient; `targets~V`
holds ids or, with one axis more, V, probabilities, which have no gradient either. A letter has one size wherever it
stands, so nothing is broadcast silently, except `bias:broadcast`, which may have 1 in an axis or lack the first ones;
`...` stands for any axes, the same wherever it stands; an array without axes is one number, of shape `()`; an axis
`C≥1` is not empty; the size of `Hk|H` divides H's. A keyword names an option and what checks it, `check(name, value)`;
an option whose type admits `None` may be `None`.

An error's message is one sentence: the argument, what was given and what was expected. A wrong kind is a `TypeError`, a
wrong shape or value a `ValueError`. `unchecked` gives the function without these checks. What would silently give
nonsense even where all shapes are right, such as an id outside its table, is checked inside the op.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np

Array = Any
"""A NumPy array here, a `torch.Tensor` in the tables of `kernels`."""

FLOAT_DTYPES = np.dtype(np.float32), np.dtype(np.float64)

Check = Callable[[str, Any], object]
"""Raises unless the option of this name may have this value."""

without_spurious_warnings = np.errstate(invalid="ignore")
"""Decorates functions that call unchecked ops; checked ops with products are decorated already. Some of OpenBLAS's
kernels load whole vectors, read past the end of a buffer and drop the surplus: where a signalling NaN happens to lie
there, NumPy would warn of an invalid value that is in no array."""

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


# --- Declarations ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrayArgument:
    """An array that an op takes. `kind` is "float", "fixed" (without a gradient), "mask" or "ids".

    Ids are below the size of the axis `limit`; `or_probabilities`, of ids: there may be probabilities instead.
    """

    name: str
    axes: tuple[str, ...]
    kind: str = "float"
    limit: str = ""
    optional: bool = False
    or_probabilities: bool = False
    broadcast: bool = False

    def as_probabilities(self) -> "ArrayArgument":
        """Return the declaration of a floating-point array in the place of ids."""
        return replace(self, axes=(*self.axes, self.limit), kind="fixed", limit="", or_probabilities=False)

    def __str__(self) -> str:
        return f"({', '.join(self.axes)}{',' * (len(self.axes) == 1)})"


@dataclass(frozen=True)
class Declaration:
    """The arguments of an op: its arrays, the letters of axes that are never empty, and its options with their checks.

    `multiples` names for some letters the one whose size theirs divides.
    """

    arrays: tuple[ArrayArgument, ...]
    not_empty: frozenset[str]
    options: Mapping[str, Check]
    multiples: Mapping[str, str]

    @classmethod
    def read(cls, line: str, options: Mapping[str, Check]) -> "Declaration":
        """Read a line such as `x ... C≥1, weight C F, bias? F, ids<V ..., key_mask?:bool B Tk`."""
        arrays, not_empty, multiples = [], set(), {}
        for part in line.split(","):
            head, *axes = part.split()
            not_empty |= {axis.removesuffix("≥1") for axis in axes if axis.endswith("≥1")}
            multiples |= dict(axis.split("|") for axis in axes if "|" in axis)
            either = "~" in head
            head, _, limit = head.replace("~", "<").partition("<")
            head, _, what = head.partition(":")
            kind = "ids" if limit else {"bool": "mask", "": "float", "broadcast": "float"}.get(what, what)
            letters = tuple(axis.removesuffix("≥1").partition("|")[0] for axis in axes)
            optional, broadcast = head.endswith("?"), what == "broadcast"
            arrays.append(ArrayArgument(head.removesuffix("?"), letters, kind, limit, optional, either, broadcast))
        return cls(tuple(arrays), frozenset(not_empty), options, multiples)

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise unless the arguments, by name, are as declared. A missing one is left to Python's own error."""
        first: tuple[str, np.dtype] | None = None  # the first floating array: its name and type
        sizes: dict[str, tuple] = {}  # by letter: its size, and the name and shape of the array that has it
        for argument in self.arrays:
            array = given.get(argument.name)
            if array is None and (argument.optional or argument.name not in given):
                continue
            array = check_array(argument.name, array)
            if argument.or_probabilities and array.dtype.kind == "f":
                argument = argument.as_probabilities()
            if argument.kind in ("float", "fixed"):
                first = first or (argument.name, array.dtype)
                if array.dtype not in FLOAT_DTYPES:
                    raise TypeError(f"{argument.name} must be float32 or float64, got {array.dtype}")
                if array.dtype != first[1]:
                    given_types = f"{first[0]} is {first[1]} and {argument.name} is {array.dtype}"
                    raise TypeError(f"{given_types}: types are never mixed")
            elif array.dtype.kind not in ("iu" if argument.kind == "ids" else "b"):
                kind = "an integer" if argument.kind == "ids" else "a boolean"
                raise TypeError(f"{argument.name} must be {kind} array, got {array.dtype}")
            self.check_shape(argument, array.shape, sizes)
        for name, check in self.options.items():
            if name in given:
                check(name, given[name])

    def check_shape(self, argument: ArrayArgument, shape: tuple[int, ...], sizes: dict[str, tuple]) -> None:
        """Raise unless a shape fits; write the size of each new letter into `sizes`."""
        name, axes = argument.name, argument.axes
        if argument.broadcast:
            expected = tuple(sizes[axis][0] if axis in sizes else axis for axis in axes)
            fits = (size in (1, full) for size, full in zip(shape[::-1], expected[::-1], strict=False))
            if len(shape) > len(axes) or (not all(fits) and sizes.keys() >= set(axes)):
                raise ValueError(f"{name} has shape {shape}, expected one that can be broadcast to {expected}")
            return
        has_dots = "..." in axes  # as the first axis
        lead = len(shape) - len(axes) + 1  # the number of axes that the dots stand for
        if lead < 0 if has_dots else lead != 1:
            needed = len(axes) - has_dots
            count = "at least " * has_dots + ("one axis" if needed == 1 else f"{needed} axes")
            known = {axis: str(sizes[axis][0]) for axis in axes if axis in sizes and axis != "..."}
            expected = replace(argument, axes=tuple(known.get(axis, axis) for axis in axes))
            raise ValueError(f"{name} has shape {shape}, expected {count} {expected}")
        for letter, size in zip(axes, (shape[:lead], *shape[lead:]) if has_dots else shape, strict=True):
            known, owner, its_shape = sizes.setdefault(letter, (size, name, shape))
            if known != size:
                sizes_here = [sizes[axis][0] if axis in sizes else axis for axis in axes]
                if has_dots:
                    sizes_here[:1] = sizes_here[0]
                expected = str(tuple(sizes_here)).replace("'", "")
                raise ValueError(f"{name} has shape {shape}, expected {expected} beside {owner} {its_shape}")
            if size == 0 and letter in self.not_empty:
                raise ValueError(f"{name} has shape {shape}, expected {argument} with {letter} ≥ 1")
            whole = self.multiples.get(letter)
            if whole in sizes and sizes[whole][0] % (size or math.inf):
                of = f"where {letter} divides {whole}, which is {sizes[whole][0]}"
                raise ValueError(f"{name} has shape {shape}, expected {argument}, {of}")


def arguments(line: str, products: bool = False, **options: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check an op's arguments before it runs, as `line` declares them; they are then the function's `.declaration`.

    An op with matrix `products`, when it is checked, also runs without NumPy's spurious warnings.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        checks = {
            name: _unless_none(check) if type(None) in get_args(parameters[name].annotation) else check
            for name, check in options.items()
        }
        declaration = Declaration.read(line, checks)
        return checked_by(declaration.check, function, products, declaration=declaration)

    return decorate


def gradient_of(
    output: Callable[..., Any],
    out: Callable[..., Mapping[str, Array | None]] | None = None,
    products: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check that the gradient which a backward receives has the shape and the type of the forward's output.

    `output(*cache)` gives an array like this output, or its shape and type; `None` where any gradient will do.
    `out(*cache)` gives arrays like those that `out=` takes, by name. The op itself deals with a cache of `None`.
    `products` as in `arguments`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = next(iter(inspect.signature(function).parameters))
        forward = function.__name__.replace("backward", "forward")

        def check(given: Mapping[str, Any]) -> None:
            cache = given.get("cache")
            if cache is None or name not in given:
                return
            parts = cache if isinstance(cache, tuple) else (cache,)
            try:
                like = output(*parts)
                expected = like if isinstance(like, tuple | None) else (like.shape, like.dtype)
            except (TypeError, AttributeError, IndexError):
                raise TypeError(f"cache is not what {forward} returned") from None
            if expected is not None:
                shape, dtype = expected
                gradient = given[name]
                if not isinstance(gradient, np.floating):
                    check_array(name, gradient)
                if gradient.dtype != dtype:
                    raise TypeError(f"{name} is {gradient.dtype} and its output is {dtype}: types are never mixed")
                if gradient.shape != shape:
                    raise ValueError(f"{name} has shape {gradient.shape}, expected its output's {shape}")
            if out is not None and given.get("out") is not None:
                _check_out(given["out"], out(*parts))

        return checked_by(check, function, products)

    return decorate


def checked_by(
    check: Callable[[Mapping[str, Any]], None], function: Callable[P, R], products: bool = False, **attributes: Any
) -> Callable[P, R]:
    """Return the function, called after `check` of its arguments by name; `.unchecked` is the function itself."""
    checked = after_check(check, without_spurious_warnings(function) if products else function)
    vars(checked).update(unchecked=function, __wrapped__=function, **attributes)
    return checked


def after_check(check: Callable[[Mapping[str, Any]], object], function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, called after `check` of its arguments by name. One too many is left to Python's error."""
    parameters = inspect.signature(function).parameters.values()
    names = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check(dict(zip(names, args, strict=False)) | kwargs)
        return function(*args, **kwargs)

    return checked


def _unless_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def unchecked(function: F) -> F:
    """Return the function without the checks of `arguments` or `gradient_of`; another, such as a probe's, as it is."""
    plain = getattr(function, "unchecked", None)
    # functools.wraps copies attributes: what is wrapped around a checked function has its `unchecked` too.
    return function if plain is None or plain is not getattr(function, "__wrapped__", None) else plain


# --- Arrays ---------------------------------------------------------------------------------------------------


def check_array(name: str, array: Any) -> np.ndarray:
    """Return `array`; raises `TypeError` for what is not NumPy's, and for matrices and masked arrays.

    The `*` of a matrix is the matrix product, and an op would lose a mask.
    """
    if type(array) is not np.ndarray and (
        not isinstance(array, np.ndarray) or isinstance(array, np.matrix | np.ma.MaskedArray)
    ):
        raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}")
    return array


def _check_out(out: Any, expected: Mapping[str, Array | None]) -> None:
    """Raise unless `out`, one array or a tuple, has the shapes and types of the gradients to be added into it."""
    arrays = out if len(expected) > 1 else [out]
    if not isinstance(arrays, tuple | list) or len(arrays) != len(expected):
        raise TypeError(f"out must be the pair ({', '.join(expected)}), got {type(out).__name__}")
    for (gradient, like), array in zip(expected.items(), arrays, strict=True):
        if like is not None:
            name = f"out's {gradient}" if len(expected) > 1 else "out"
            array = check_array(name, array)
            if array.dtype != like.dtype:
                raise TypeError(f"{name} is {array.dtype} and the gradient is {like.dtype}: types are never mixed")
            if array.shape != like.shape:
                raise ValueError(f"{name} has shape {array.shape}, expected {like.shape}")


def check_ids(name: str, ids: Array, limit: int, ignore: int | None = None) -> None:
    """Raise `ValueError` unless all ids are from 0 to `limit` − 1 or equal to `ignore`; `TypeError` for floats."""
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, got {ids.dtype}")
    outside = (ids < 0) | (ids >= limit)
    if ignore is not None:
        outside &= ids != ignore
    if outside.any():
        raise ValueError(f"{name} holds {ids[outside].flat[0]}, expected ids from 0 to {limit - 1}")


def check_probabilities(name: str, array: Array) -> None:
    """Raise `ValueError` unless all numbers are from 0 to 1, where softmax's rounding errors lie too."""
    outside = ~((array >= 0) & (array <= 1 + 1e-5))
    if outside.any():
        raise ValueError(f"{name} holds {array[outside].flat[0]}, expected probabilities from 0 to 1")


# --- Options --------------------------------------------------------------------------------------------------


def check_number(name: str, value: Any, at_least: float = -math.inf, at_most: float = math.inf) -> None:
    """Raise unless the value is a finite number in [at_least, at_most]."""
    number = as_float(name, value)
    if not (math.isfinite(number) and at_least <= number <= at_most):
        raise ValueError(f"{name} is {number}, expected a finite number in [{at_least:g}, {at_most:g}]")


check_not_negative = partial(check_number, at_least=0.0)


def check_positive(name: str, value: Any) -> None:
    """Raise unless the value is a finite number above 0."""
    check_not_negative(name, value)
    if value == 0:
        raise ValueError(f"{name} is 0, expected a finite number above 0")


def check_scalar(name: str, value: Any) -> float:
    """Return a number, or an array of one element, as a `float`."""
    if not isinstance(value, np.ndarray):
        return as_float(name, value)
    check_array(name, value)
    if value.size != 1:
        raise ValueError(f"{name} has shape {value.shape}, expected one number")
    if value.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a number, got {value.dtype}")
    return float(value.item())


def as_float(name: str, value: Any) -> float:
    """Return a number as a `float`; an integer too large for one becomes infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_integer(name: str, value: Any, at_least: float = -math.inf, at_most: float = math.inf) -> None:
    """Raise unless the value is an integer in [at_least, at_most]; True and False are not integers here."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not at_least <= value <= at_most:
        shown = f"{as_float(name, value):.15g}"
        bounds = f"of {at_least} or more" if at_most == math.inf else f"from {at_least} to {at_most}"
        raise ValueError(f"{name} is {shown}, expected an integer {bounds}")


def check_ignore_index(ignore_index: Any) -> int | None:
    """Return the target that does not count as an `int`, in the vocabulary or not; `None` where all count."""
    if ignore_index is None:
        return None
    check_integer("ignore_index", ignore_index, -(2**31), 2**31 - 1)
    return int(ignore_index)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless the value is one of these names."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {', '.join(choices)}, got {type(value).__name__}")
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def check_flag(name: str, value: Any) -> None:
    """Raise `TypeError` unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}")
