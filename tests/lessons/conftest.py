"""The lessons' kernels run in the interpreter as those of `tests/kernels` do."""

from support.kernels.interpreter import fast_interpreter  # noqa: F401
