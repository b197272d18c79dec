"""One test body for everything that has a backward: central differences, PyTorch's autograd, and good manners."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st

from minitransformer.gradcheck import check_gradients, error

AUTOGRAD_TOLERANCE = 1e-10
DIFFERENCES_TOLERANCE = 1e-6

Kind = Literal["autograd", "finite differences"]
Arrays = Mapping[str, Any]  # NumPy arrays, or None for an argument that is left out

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)
batches = st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2).map(tuple)
"""The leading axes `...` of an array: none, one or two, and now and then an empty one."""


class Proof:
    """The worst error that was seen of each component, by kind of evidence."""

    KINDS: tuple[Kind, ...] = ("autograd", "finite differences")

    def __init__(self) -> None:
        self.worst: dict[str, dict[Kind, float]] = {}

    def record(self, component: str, kind: Kind, value: float) -> None:
        """Keep `value` where it is the component's largest of this kind so far."""
        errors = self.worst.setdefault(component, {})
        errors[kind] = max(float(value), errors.get(kind, 0.0))

    def json(self) -> str:
        """Return the errors for the site, with the versions of the libraries that were compared."""
        versions = {"NumPy": np.__version__, "PyTorch": torch.__version__.partition("+")[0]}
        return json.dumps({"versions": versions, "worst": self.worst}, indent=1)

    def table(self) -> list[str]:
        """The lines of the table, in the order in which components were first proved; empty without any."""
        if not self.worst:
            return []
        width = max(len(name) for name in ("component", *self.worst))
        head = f"{'component':{width}} │ worst error against autograd │ worst error against finite differences"
        lines = [head, "─" * width + "─┼─" + "─" * 28 + "─┼─" + "─" * 37]
        for name, errors in self.worst.items():
            autograd, differences = (f"{errors[kind]:.1e}" if kind in errors else "–" for kind in self.KINDS)
            lines.append(f"{name:{width}} │ {autograd:>28} │ {differences:>37}")
        return lines


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal numbers (float64) that lie in memory in one of four ways, drawn too."""
    layout = rng.choice(["C", "transposed", "strided", "reversed"])
    if layout == "transposed":
        return np.asarray(rng.standard_normal(shape[::-1])).T
    if layout == "strided" and shape:
        return rng.standard_normal((*shape[:-1], 2 * shape[-1]))[..., ::2]
    if layout == "reversed" and shape:
        return np.flip(rng.standard_normal(shape))
    return np.asarray(rng.standard_normal(shape))


def prove(
    component: str,
    forward: Callable[..., tuple[Any, Any]],
    backward: Callable[[Any, Any], Any],
    oracle: Callable[..., torch.Tensor],
    arrays: Arrays,
    proof: Proof,
    samples: int | None = None,
) -> None:
    """Prove a pair of functions right at `arrays` (float64), and record the errors.

    - The output and every gradient equal those of `oracle`, the same function over tensors, under autograd.
    - Every gradient agrees with central differences, at `samples` random coordinates of each where it is given.
    - The backward is linear in the gradient that it receives, however that lies in memory.
    - Nothing is written into inputs or received gradients, and one call's cache knows nothing of another call.
    - float32 in, float32 out.
    """
    for array in arrays.values():
        if array is not None:
            array.flags.writeable = False
    out, cache = forward(*arrays.values())
    rng = np.random.default_rng(np.size(out))
    dout = read_only(normal(rng, *np.shape(out)))
    gradients = as_list(backward(dout, cache))

    expected_out, expected_gradients = autograd(oracle, arrays, dout)
    assert error(out, expected_out) <= AUTOGRAD_TOLERANCE
    worst = worst_error(gradients, expected_gradients)
    proof.record(component, "autograd", worst)
    assert worst <= AUTOGRAD_TOLERANCE

    errors = check_gradients(forward, backward, arrays, tolerance=DIFFERENCES_TOLERANCE, samples=samples)
    proof.record(component, "finite differences", max(errors.values()))

    prove_linear(backward, cache, gradients, dout)
    prove_independent(forward, backward, arrays, gradients, dout)
    prove_float32_stays(forward, backward, arrays)


def prove_linear(backward: Callable, cache: Any, gradients: list, dout: np.ndarray) -> None:
    """`backward(2·dout − other) = 2·backward(dout) − backward(other)`, `other` being a broadcast (stride 0)."""
    other = np.broadcast_to(np.random.default_rng(1).standard_normal(dout.shape[-1:]), dout.shape)
    of_other = as_list(backward(other, cache))
    of_both = as_list(backward(read_only(np.asarray(2 * dout - other)), cache))
    expected = [None if g is None else 2 * g - o for g, o in zip(gradients, of_other, strict=True)]
    assert worst_error(of_both, expected) <= AUTOGRAD_TOLERANCE
    assert worst_error(as_list(backward(read_only(other.copy()), cache)), of_other) <= AUTOGRAD_TOLERANCE


def prove_independent(forward: Callable, backward: Callable, arrays: Arrays, gradients: list, dout: np.ndarray) -> None:
    """Two calls whose backwards come in the same order, not reversed: each gives what it gives alone."""
    others = [np.asarray(a + 1) if is_float(a) else a for a in arrays.values()]
    alone = as_list(backward(dout, forward(*others)[1]))
    _, cache = forward(*arrays.values())
    _, other_cache = forward(*others)
    again, of_other = as_list(backward(dout, cache)), as_list(backward(dout, other_cache))
    for actual, expected in zip([*again, *of_other], [*gradients, *alone], strict=True):
        np.testing.assert_array_equal(actual, expected)


def prove_float32_stays(forward: Callable, backward: Callable, arrays: Arrays) -> None:
    """The output and the gradients have the type of the inputs."""
    single = [a.astype(np.float32) if is_float(a) else a for a in arrays.values()]
    out, cache = forward(*single)
    gradients = as_list(backward(np.ones_like(out), cache))
    assert {np.asarray(a).dtype for a in (out, *gradients) if a is not None} == {np.dtype(np.float32)}


def prove_float32_accuracy(
    forward: Callable, backward: Callable, oracle: Callable, draw: Callable[[np.random.Generator], Arrays]
) -> None:
    """float32's error against float64 is at most twice that of PyTorch's own float32, output and gradients alike.

    The two errors are averaged over eight drawings, since one is the rounding of a single unlucky element.
    """
    rng = np.random.default_rng(0)
    our_errors, their_errors = [], []
    for _ in range(8):
        single = {name: a.astype(np.float32) if is_float(a) else a for name, a in draw(rng).items()}
        double = {name: a.astype(np.float64) if is_float(a) else a for name, a in single.items()}
        out, cache = forward(*single.values())
        dout = rng.standard_normal(np.shape(out)).astype(np.float32)
        ours = [*as_list(backward(dout, cache)), out]
        their_out, theirs = autograd(oracle, single, dout)
        true_out, truths = autograd(oracle, double, dout.astype(np.float64))
        triples = list(zip(ours, [*theirs, their_out], [*truths, true_out], strict=True))
        triples = [triple for triple in triples if np.ndim(triple[2])]  # one number, such as a loss, says too little
        assert min((truth.size for _, _, truth in triples), default=0) >= 1000, "too few elements to compare errors by"
        our_errors.append([error(our, truth) for our, _, truth in triples])
        their_errors.append([error(their, truth) for _, their, truth in triples])
    assert (np.mean(our_errors, axis=0) <= 2 * np.mean(their_errors, axis=0)).all()


def beside(function: Callable, fixed: Arrays) -> Callable:
    """The function with arrays that have no gradient, as keywords, in the type of its first argument."""

    def call(*arrays: Any) -> Any:
        dtype = arrays[0].detach().numpy().dtype if isinstance(arrays[0], torch.Tensor) else arrays[0].dtype
        return function(*arrays, **{name: array.astype(dtype) for name, array in fixed.items()})

    return call if fixed else function


def autograd(oracle: Callable, arrays: Arrays, dout: np.ndarray) -> tuple[np.ndarray, list]:
    """The output of `oracle` over tensors, and the gradients of its floating-point arrays, by autograd."""
    tensors = [None if a is None else torch.tensor(a.copy(), requires_grad=is_float(a)) for a in arrays.values()]
    out = oracle(*tensors)
    out.backward(torch.tensor(np.array(dout)))
    gradients = [
        None if t is None else torch.zeros_like(t) if t.grad is None else t.grad
        for t in tensors
        if t is None or t.requires_grad
    ]
    return out.detach().numpy(), [None if g is None else g.numpy() for g in gradients]


def evaluate(oracle: Callable, *arrays: Any) -> np.ndarray:
    """The output of an oracle for NumPy arrays, without gradients."""
    return oracle(*(torch.tensor(np.array(a)) for a in arrays)).numpy()


def worst_error(actual: list, expected: list) -> float:
    """The largest error of several gradients; one may be None only where the other is."""
    pairs = list(zip(actual, expected, strict=True))
    assert all((a is None) == (b is None) for a, b in pairs)
    return max(error(a, b) for a, b in pairs if a is not None)


def as_list(gradients: Any) -> list:
    """A backward's result as a list, also where it is one bare gradient."""
    return list(gradients) if isinstance(gradients, tuple) else [gradients]


def is_float(array: Any) -> bool:
    """Return True if an argument is a floating-point array."""
    return array is not None and array.dtype.kind == "f"


def read_only(array: np.ndarray) -> np.ndarray:
    """The array, locked: whoever writes into it raises."""
    array.flags.writeable = False
    return array
