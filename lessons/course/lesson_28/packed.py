"""Lesson 28: a weight in four bits, as the lesson's functions hand it to each other."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Packed(NamedTuple):
    """A weight `(C_in, C_out)` in four bits, in groups along C_in: `scales · q + minima`, two numbers q in a byte.

    packed  `(C_out, C_in/group, group/2)`, uint8
    scales  `(C_out, C_in/group)`, float16
    minima  `(C_out, C_in/group)`, float16
    """

    packed: NDArray[np.uint8]
    scales: NDArray[np.float16]
    minima: NDArray[np.float16]

    @property
    def nbytes(self) -> int:
        """The bytes of all three arrays."""
        return sum(array.nbytes for array in self)
