"""Count the work of a NumPy function, a number that is the same on every machine, however busy it is."""

from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np

CREATE = (
    "array asarray asanyarray ascontiguousarray zeros ones empty full arange linspace eye identity tri fromiter"
).split()
"""NumPy's functions that create an array without consulting `__array_function__` of their arguments."""
METHODS = (
    "copy astype reshape ravel flatten take repeat compress dot trace nonzero tolist sort argsort fill argmax argmin"
).split()
"""An array's methods that may read or write all of it and are no ufuncs."""
PRODUCTS = np.matmul, np.dot, np.inner, np.ndarray.dot


class Counted(np.ndarray):
    """An array whose operations add the numbers they read and write, and multiply in products, to `Counted.numbers`.

    A view, such as a slice, costs nothing. The result of an operation on a `Counted` is a `Counted` too.
    """

    numbers = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        given = _plain(inputs)
        result = getattr(ufunc, method)(*given, **_plain(options))
        _count(ufunc, given[method == "at" :], result)  # `at` touches only the indexed elements
        out = options.get("out")
        return _counted(result) if out is None else out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return _run(function, inputs, options)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if not isinstance(found, Counted):
            Counted.numbers += 1
        elif not np.may_share_memory(_plain(found), _plain(self)):
            Counted.numbers += found.size
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        Counted.numbers += np.size(super().__getitem__(index))

    def view(self, *inputs: Any, **options: Any) -> Any:
        return _counted(super().view(*inputs, **options))


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that `Counted.numbers` is the work of its last call; arguments and result are plain arrays."""

    @wraps(function)
    def call(*inputs: Any, **options: Any) -> Any:
        Counted.numbers = 0
        create: dict[str, Any] = {name: _watched(getattr(np, name)) for name in CREATE}
        with patch.multiple(np, **create):
            return _plain(function(*_counted(inputs), **_counted(options)))

    return call


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    return wraps(function)(lambda *inputs, **options: _run(function, inputs, options))


for _name in METHODS:
    setattr(Counted, _name, _watched(getattr(np.ndarray, _name)))


def _run(function: Callable[..., Any], inputs: Any, options: Any) -> Any:
    given, named = _plain(inputs), _plain(options)
    result = function(*given, **named)
    arrays, made = _arrays((given, named)), _arrays(result)
    views = made and all(any(np.may_share_memory(each, array) for array in arrays) for each in made)
    if function not in (np.shape, np.ndim, np.size) and (not views or "out" in named):
        _count(function, given, result)
    return _counted(result)


def _count(function: Callable[..., Any], given: Any, result: Any) -> None:
    Counted.numbers += sum(array.size for array in _arrays((given, result)))
    if function in PRODUCTS:
        Counted.numbers += np.size(result) * prod(np.shape(given[0])[-1:])
    elif function in (np.convolve, np.correlate):
        Counted.numbers += np.size(given[0]) * np.size(given[1])
    elif function is np.einsum and isinstance(given[0], str):
        terms, sizes = given[0].replace(" ", "").replace("...", "").split("->")[0].split(","), {}
        for term, array in zip(terms, given[1:], strict=True):
            sizes |= dict(zip(reversed(term), reversed(np.shape(array)), strict=False))
        Counted.numbers += prod(sizes.values())


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if not isinstance(value, list | tuple | dict):
        return []
    return [array for each in (value.values() if isinstance(value, dict) else value) for array in _arrays(each)]


def _as(kind: type, value: Any) -> Any:
    """Return `value` with all its arrays, however deep, viewed as another class."""
    if isinstance(value, np.ndarray):
        return np.ndarray.view(value, kind)
    if type(value) in (list, tuple):
        return type(value)([_as(kind, each) for each in value])
    return {name: _as(kind, each) for name, each in value.items()} if type(value) is dict else value


def _plain(value: Any) -> Any:
    return _as(np.ndarray, value)


def _counted(value: Any) -> Any:
    return _as(Counted, value)
