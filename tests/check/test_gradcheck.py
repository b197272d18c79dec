"""The gradient checker: right gradients pass, wrong ones are refused, and the message says what is wrong."""

import numpy as np
import pytest

from minitransformer.gradcheck import GradientError, check_gradients, error, numerical_gradient

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 4))


def matmul(x, w):
    """A function of two arrays whose right gradients are `dy @ w.T` and `x.T @ dy`."""
    return x @ w, (x, w)


def check(backward, **options):
    return check_gradients(matmul, backward, {"x": X, "w": W}, **options)


def test_right_gradients_pass():
    errors = check(lambda dy, cache: (dy @ cache[1].T, cache[0].T @ dy))
    assert list(errors) == ["x", "w"]
    assert max(errors.values()) <= 1e-9


def test_numerical_gradient():
    x = np.asfortranarray(RNG.standard_normal((2, 3)))
    before = x.copy()
    gradient = numerical_gradient(lambda x: (x**3).sum(), x)
    assert error(gradient, 3 * x**2) <= 1e-9
    np.testing.assert_array_equal(x, before)


def test_integers_and_none_have_no_gradient():
    def gather(ids, table, bias):
        return table[ids] if bias is None else table[ids] + bias, (ids, table.shape)

    def backward(dy, cache):
        ids, shape = cache
        dtable = np.zeros(shape)
        np.add.at(dtable, ids, dy)
        return dtable, None

    arrays = {"ids": np.array([1, 1, 0]), "table": W, "bias": None}
    assert list(check_gradients(gather, backward, arrays)) == ["table"]


def test_one_gradient_is_bare_and_a_scalar_is_an_output():
    assert check_gradients(lambda x: ((x * x).sum(), x), lambda dy, x: 2 * dy * x, {"x": X})["x"] <= 1e-9


def test_a_number_has_a_gradient():
    assert check_gradients(lambda x: (x * x, x), lambda dy, x: 2 * dy * x, {"x": 3.0})["x"] <= 1e-9


def test_samples_limit_the_work():
    calls = []

    def forward(x):
        calls.append(1)
        return x, None

    check_gradients(forward, lambda dy, cache: dy, {"x": np.ones((50, 50))}, samples=5)
    assert len(calls) == 1 + 2 * 5


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda dy, c: (-dy @ c[1].T, c[0].T @ dy), "gradient of x .*wrong sign"),
        (lambda dy, c: (dy @ c[1].T, 2 * c[0].T @ dy), "gradient of w .*2 times the true gradient"),
        (lambda dy, c: (dy @ c[1].T, (c[0].T @ dy).T), "gradient of w .*transpose of the true gradient"),
        (lambda dy, c: (dy @ c[1].T, np.zeros_like(c[1])), "gradient of w .*zero everywhere"),
        (lambda dy, c: (dy @ c[1], c[0].T @ dy), "gradient of x .*wrong"),
        (lambda dy, c: (dy @ c[1].T * np.nan, c[0].T @ dy), "gradient of x .*NaN"),
        (lambda dy, c: dy @ c[1].T, r"must return 2 gradients \(x, w\), got 1"),
        (lambda dy, c: ((dy @ c[1].T).T, c[0].T @ dy), r"gradient of x .*\(3, 4\), got \(4, 3\): is it transposed"),
        (lambda dy, c: (dy @ c[1].T, None), "gradient of w must be an array, got NoneType"),
    ],
)
def test_wrong_gradients_are_refused_with_their_reason(backward, message):
    with pytest.raises(GradientError, match=message):
        check(backward)


def test_swapped_gradients_are_recognised():
    with pytest.raises(GradientError, match=r"gradient of a .*returns for b would be right"):
        check_gradients(lambda a, b: (a * b, (a, b)), lambda dy, c: (dy * c[0], dy * c[1]), {"a": X, "b": X[::-1]})


def test_one_wrong_coordinate_is_found_and_named():
    def backward(dy, cache):
        dw = cache[0].T @ dy
        dw[2, 1] += 1e-5
        return dy @ cache[1].T, dw

    with pytest.raises(GradientError, match=r"gradient of w .*index \(2, 1\).* Only 6% of"):
        check(backward)


def test_float32_is_refused():
    with pytest.raises(TypeError, match=r"x must be float64.*float32"):
        check_gradients(matmul, lambda dy, cache: (dy, dy), {"x": X.astype(np.float32), "w": W})
    with pytest.raises(TypeError, match=r"forward's output must be float64.*float32"):
        check_gradients(lambda x: (x.astype(np.float32), None), lambda dy, cache: dy, {"x": X})
    with pytest.raises(TypeError, match="x must be float64"):
        numerical_gradient(lambda x: x.sum(), X.astype(np.float32))  # type: ignore


def test_a_function_of_many_numbers_has_no_gradient():
    with pytest.raises(ValueError, match=r"one number.*\(3, 4\)"):
        numerical_gradient(lambda x: x, X)


def test_error_is_relative_above_one_and_absolute_below():
    assert error([1.0, 200.0], [1.0, 100.0]) == 1.0
    assert error([0.0, 0.02], [0.0, 0.01]) == pytest.approx(0.01)
    assert error(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_never_pass(bad):
    assert error([bad], [0.0]) == np.inf
    assert error([0.0], [bad]) == np.inf
    assert error([bad], [bad]) == np.inf


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"\(2,\) and \(1,\)"):
        error([1.0, 1.0], [1.0])
