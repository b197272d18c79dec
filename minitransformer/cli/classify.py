"""Say to which class an image, or a text, belongs.

examples:
  {program} classify runs/digits-vit/step-00002000.safetensors --digits 0 1 2
  {program} classify runs/digits-vit/step-00002000.safetensors seven.png
  {program} classify my-bert "A sentence to judge."

MODEL is a checkpoint of `train --kind vit`, or a folder with a ViT, or with a BERT that has a classifier, as
`transformers` saves it. An image is a PNG; one that is larger than the model's by a whole factor is averaged down. Each
line is an input, its most probable class and the probability, separated by tabs.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..data.batching import BOS_ID, EOS_ID
from ..data.digits import digits
from ..data.tokenizer import BPETokenizer
from ..decoding import with_tokenizer
from ..decoding.sampling import softmax_of
from ..decoding.tokenizer import check_vocabulary, encode_whole
from ..models import BERT, ViT
from .backend import add_backend_options, chosen_backend
from .common import Parser, add_option, check_utf8, heavy_work, one_line, path_name, whole_number
from .model_argument import open_model

HELP = "classify images with a ViT, or texts with a BERT"


def add_options(parser: Parser) -> None:
    """Declare the options of `classify`."""
    add_option(parser, "model", "MODEL", path_name, "a checkpoint, a folder of `save_pretrained`, or a hub's name")
    inputs = parser.add_argument("inputs", nargs="*", metavar="INPUT", help="image files, or texts for a BERT")
    help_text = "numbers of scikit-learn's held-out digits; the true class is shown too"
    add_option(parser, "--digits", "N", whole_number(least=0), help_text, nargs="+")
    add_backend_options(parser)
    parser.set_defaults(trailing=inputs)


def run(args: argparse.Namespace) -> int:
    """Print each input with its class."""
    if bool(args.inputs) == (args.digits is not None):
        raise ValueError("name what to classify: images or texts, or --digits, one of the two")
    backend = chosen_backend(args)
    with heavy_work():
        opened = open_model(args.model, backend)
        model: Any = opened.model
        if isinstance(model, ViT):
            names, images = held_out(args.digits) if args.digits is not None else files(args.inputs, model)
            logits, _ = model.forward(images)
        elif isinstance(model, BERT) and model.config.head == "classes" and args.digits is None:
            names, tokenizer = args.inputs, with_tokenizer(args.model, opened).tokenizer
            check_vocabulary(model.config, tokenizer)
            for number, text in enumerate(args.inputs, start=1):
                check_utf8(f"input {number}", text)
            logits = np.concatenate(
                [model.ops.to_numpy(model.forward([encoded(model.config, tokenizer, text)])[0]) for text in args.inputs]
            )
        else:
            raise ValueError(f"{args.model} holds a model of kind {model.config.kind!r}, which can't classify that")
        probabilities = softmax_of(model.ops.to_numpy(logits))  # (N, classes)
    for name, row in zip(names, probabilities, strict=True):
        print(f"{one_line(name)}\t{row.argmax()}\t{row.max():.4f}")
    return 0


def held_out(numbers: list[int]) -> tuple[list[str], np.ndarray]:
    """Names and images of held-out digits. Raises ValueError for a number beyond their count."""
    _, valid = digits()
    for number in numbers:
        if number >= len(valid):
            raise ValueError(f"--digits {number}: there are {len(valid)} held-out digits, 0 to {len(valid) - 1}")
    return [f"digit {number}, a {valid.classes[number]}" for number in numbers], valid.images[numbers]


def files(paths: list[str], model: ViT) -> tuple[list[str], np.ndarray]:
    """Names and images of PNG files, as the model takes them: pixels from −1, black, to 1."""
    return paths, np.stack([read_image(Path(path), model) for path in paths])


def read_image(path: Path, model: ViT) -> np.ndarray:
    """Return an image file as `(channels, size, size)`. Raises ValueError for no image and for another shape."""
    from matplotlib.image import imread
    from PIL import Image

    try:
        image = np.asarray(imread(path), np.float64)
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:  # SyntaxError: a damaged PNG
        raise ValueError(f"{path} is not an image that can be read: {error}") from None
    image = image if image.max(initial=0.0) <= 1.0 else image / 255.0
    channels, size = model.config.channels, model.config.image_size
    image = image[:, :, None] if image.ndim == 2 else image[:, :, :3]
    height, width, colours = image.shape
    if height != width or height % size:
        raise ValueError(f"{path} has {height} × {width} pixels, expected {size} × {size} or a multiple of it")
    if colours != channels:
        image = np.repeat(image.mean(2, keepdims=True), channels, axis=2)
    factor = height // size
    image = image.reshape(size, factor, size, factor, channels).mean((1, 3))
    return (2 * image - 1).transpose(2, 0, 1)


def encoded(config: Any, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text with the marks around it."""
    if isinstance(tokenizer, BPETokenizer):
        return [BOS_ID, *tokenizer.encode(text), EOS_ID]
    return encode_whole(config, tokenizer, text)
