"""The number of threads of NumPy's BLAS, for tests that ask for it."""

from minitransformer.system.threads import _blas


def blas_threads() -> set[int]:
    """The threads of NumPy's BLAS, and of others that were there when it was looked up: a test may load more."""
    return {pool["num_threads"] for pool in _blas().info() if pool["user_api"] == "blas"}
