"""Pictures as a ViT reads them: of its size, and each channel with the mean and the deviation that the model knows.

    x = (pixels · factor − mean) / std

The options are those of the image processors of `transformers`, and so are the numbers, bit for bit. A photograph is
turned as its camera says (EXIF), and is read as RGB, or as grey for a model of one channel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import require
from ..models import Model

BOX, BILINEAR, BICUBIC = 4, 2, 3
"""Pillow's numbers of ways to resize."""

GREY = 128
"""The grey, of 255, that shows through the transparent parts of pictures of scenes."""

LARGEST = 10_000
"""In pixels: a longer side of a resized picture is refused, before it takes memory."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ViTImageProcessor": {"size": 224, "resample": BILINEAR, "do_center_crop": False},
    "DeiTImageProcessor": {"size": 256, "resample": BICUBIC, "do_center_crop": True},
}
"""The options that a file may leave out, by the class that wrote it; both classes share those of SHARED."""

SHARED = {"do_resize": True, "do_rescale": True, "do_normalize": True, "do_pad": False}
SHARED |= {"crop_size": 224, "rescale_factor": 1 / 255, "image_mean": 0.5, "image_std": 0.5}


@dataclass(frozen=True)
class ImageProcessor:
    """The way in which a picture becomes an array.

    size: the height and width to which a picture is resized, or one number for its shorter side, `None`: it is not;
    resample: Pillow's number of the way; crop: height and width of what is kept of the middle; factor, mean and std: as
    above, with a mean and a deviation for each channel; ground: the grey, of 255, that shows through transparent parts,
    `None`: these have the colours that their pixels hold, often black.
    """

    size: tuple[int, ...] | None
    resample: int = BOX
    crop: tuple[int, ...] | None = None
    factor: float = 1 / 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    ground: int | None = None

    def __call__(self, picture: Any) -> NDArray[np.float32]:
        """Return a picture of Pillow's as an array `(channels, height, width)`."""
        from PIL import Image, ImageOps

        picture = ImageOps.exif_transpose(picture)
        if self.ground is not None and picture.has_transparency_data:
            ground = Image.new("RGBA", picture.size, (self.ground,) * 3)
            picture = Image.alpha_composite(ground, picture.convert("RGBA"))
        picture = picture.convert("L" if len(self.mean) == 1 else "RGB")
        if self.size is not None:
            width, height = self._resized(*picture.size)
            picture = picture.resize((width, height), self.resample)
        if self.crop is not None:
            top, left = (picture.height - self.crop[0]) // 2, (picture.width - self.crop[1]) // 2
            picture = picture.crop((left, top, left + self.crop[1], top + self.crop[0]))  # black beyond its edges
        pixels = np.asarray(picture, np.float64).reshape(picture.height, picture.width, -1)
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return (((pixels * self.factor).astype(np.float32) - mean) / std).transpose(2, 0, 1)

    def read(self, path: str | PathLike[str]) -> NDArray[np.float32]:
        """Return the picture in a file as an array. Raises OSError, or ValueError for a file that holds no picture."""
        from PIL import Image, UnidentifiedImageError

        with open(path, "rb") as file:
            try:
                with Image.open(file) as picture:
                    if picture.mode[0] in "IF":  # Pillow would cut off at 255
                        raise ValueError(f"a channel has more than 8 bits (Pillow's mode {picture.mode})")
                    return self(picture)
            except UnidentifiedImageError:
                raise ValueError(f"{path} is not an image that can be read") from None
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                raise ValueError(f"{path} is not an image that can be read: {error}") from None

    def arrays(self, pictures: Sequence[Any], config: Any) -> NDArray[np.floating]:
        """Return pictures `(N, channels, height, width)`, of which each is an array already or the path of a file.

        Raises `ValueError` for one that the model does not take, and `TypeError` for one str.
        """
        if isinstance(pictures, str):
            raise TypeError("pictures must be a sequence of pictures, not one str")
        return np.stack([self._array(picture, config) for picture in pictures])

    def _array(self, picture: Any, config: Any) -> NDArray[np.floating]:
        shape = (config.channels, config.image_size, config.image_size)
        if isinstance(picture, np.ndarray):
            floating = np.issubdtype(picture.dtype, np.floating)
            fits = picture.shape == shape and floating and bool(np.isfinite(picture).all())
            found = f"shape {picture.shape} and dtype {picture.dtype}"
            require(fits, f"the array of a picture has {found}, expected {shape} of finite floating-point numbers")
            return picture
        pixels = self.read(picture)
        height, width = pixels.shape[1:]
        fits = (height, width) == shape[1:]
        require(fits, f"{picture} becomes {height} × {width} pixels, but the model takes {shape[1]} × {shape[2]}")
        return pixels

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Return the new width and height of a picture."""
        assert self.size is not None
        if len(self.size) == 2:
            return self.size[1], self.size[0]
        short, long = self.size[0], int(self.size[0] * max(width, height) / min(width, height))
        if long > LARGEST:
            raise ValueError(f"it would have {long:,} pixels a side, and at most {LARGEST:,} are supported")
        return (short, long) if width <= height else (long, short)


def processor_of(model: Model[Any], ground: int | None = None) -> ImageProcessor:
    """Return what the folder of a loaded model says in `preprocessor_config.json`.

    Without such a file, as in a checkpoint, pixels go from −1, black, to 1, and a picture that is larger by a whole
    factor is averaged, on a `ground` if there is one. Raises `ValueError`, naming it, for an option that is not
    supported.
    """
    config = model.config
    values = getattr(model.origin, "beside", {}).get("preprocessor_config.json")
    if values is None:
        even = (0.5,) * config.channels
        return ImageProcessor((config.image_size,) * 2, mean=even, std=even, ground=ground)
    try:
        return _processor(values, config)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"preprocessor_config.json is damaged: {error}") from None


def _processor(values: Mapping[str, Any], config: Any) -> ImageProcessor:
    name = values.get("image_processor_type") or values.get("feature_extractor_type")
    name = name or ("ViTImageProcessor" if config.distillation == "none" else "DeiTImageProcessor")
    name = name.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
    if name not in DEFAULTS:
        raise ValueError(f"the image processor {name} is not supported, only {' and '.join(DEFAULTS)}")
    given = {option: value for option, value in values.items() if value is not None}
    options = {**SHARED, **DEFAULTS[name], **given}
    if options["do_pad"]:
        raise ValueError("an image processor that pads (do_pad) is not supported")
    if options["resample"] not in range(6):
        raise ValueError(f"resample is {options['resample']!r}, expected a number of Pillow's from 0 to 5")
    return ImageProcessor(
        _size("size", options["size"]) if options["do_resize"] else None,
        options["resample"],
        _size("crop_size", options["crop_size"]) if options["do_center_crop"] else None,
        _numbers("rescale_factor", options["rescale_factor"], 1)[0] if options["do_rescale"] else 1.0,
        _numbers("image_mean", options["image_mean"] if options["do_normalize"] else 0.0, config.channels),
        _numbers("image_std", options["image_std"] if options["do_normalize"] else 1.0, config.channels),
    )


def _size(name: str, value: Any) -> tuple[int, ...]:
    """Return height and width, or the shorter side, from the forms in which files say them."""
    sides = value
    if isinstance(value, Mapping):
        sides = [value[each] for each in sorted(value)] if value.keys() == {"height", "width"} else None
        sides = [value["shortest_edge"]] if value.keys() == {"shortest_edge"} and name == "size" else sides
    elif not isinstance(value, list):
        sides = [value, value]
    if not sides or len(sides) > 2 or not all(type(each) is int and 0 < each <= LARGEST for each in sides):
        raise ValueError(f"{name} {value!r} is not supported, only a height and a width, or the size's shortest_edge")
    return tuple(sides)


def _numbers(name: str, value: Any, count: int) -> tuple[float, ...]:
    """Return a number for each channel, of which a file may say one for all."""
    numbers = value if isinstance(value, list) else [value] * count
    known = all(type(each) in (int, float) and math.isfinite(each) for each in numbers)
    if len(numbers) != count or not known or (name == "image_std" and not all(numbers)):
        raise ValueError(f"{name} {value!r} is not supported, only {count} finite numbers")
    return tuple(map(float, numbers))
