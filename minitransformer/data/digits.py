"""Handwritten digits: 1,797 images of 8 × 8 pixels (Alpaydin & Kaynak 1998), which scikit-learn brings along."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rows import RowBatches, Rows

NUM_CLASSES, SIZE = 10, 8
HELD_OUT = 5  # one image in five
BRIGHTEST = 16.0


class ImageDataset:
    """Images `(N, channels, height, width)` and their classes `(N,)`."""

    def __init__(self, images: NDArray[np.floating], classes: NDArray[np.integer]) -> None:
        if len(images) != len(classes) or not len(images):
            raise ValueError(f"there are {len(images)} images and {len(classes)} classes, expected as many, and some")
        self.images, self.classes = images, classes.astype(np.int64)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.images)

    def checksum(self) -> int:
        """Return the CRC-32 of all pixels and classes."""
        return zlib.crc32(self.classes.astype("<i8").tobytes(), zlib.crc32(self.images.astype("<f8").tobytes()))

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> RowBatches:
        """Return batches (images, classes) of at most `tokens_per_batch` positions, but of one image at least.

        An image has a position for each patch and one for its class. Raises ValueError for images of another shape than
        the configuration's, and for a class that it lacks.
        """
        expected = (config.channels, config.image_size, config.image_size)
        if self.images.shape[1:] != expected:
            raise ValueError(f"the images have shape {self.images.shape[1:]}, but the model takes {expected}")
        if self.classes.max() >= config.num_classes:
            raise ValueError(f"the dataset has class {self.classes.max()}, but the model knows {config.num_classes}")
        size = max(1, tokens_per_batch // (1 + config.num_patches))

        def make(rows: NDArray[np.int64], epoch: int, rng: np.random.Generator) -> Rows:
            return Rows((self.images[rows], self.classes[rows]))

        return RowBatches(len(self), size, seed, make)


def digits() -> tuple[ImageDataset, ImageDataset]:
    """Return the digits to train on and those held out, a fifth of each class; a pixel is between −1 and 1.

    Raises ModuleNotFoundError, which says what to install, if scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the digits come with scikit-learn: pip install scikit-learn") from None
    loaded: Any = load_digits()
    images = (2 * loaded.images / BRIGHTEST - 1)[:, None].astype(np.float32)
    held_out = np.zeros(len(images), bool)
    for digit in range(NUM_CLASSES):
        held_out[np.flatnonzero(loaded.target == digit)[::HELD_OUT]] = True
    train, valid = (ImageDataset(images[which], loaded.target[which]) for which in (~held_out, held_out))
    return train, valid
