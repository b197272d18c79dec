"""Say to which class a picture, or a text, belongs.

examples:
  {program} classify runs/digits-vit/step-00002000.safetensors --digits 0 1 2
  {program} classify google/vit-base-patch16-224 cat.jpg dog.png --count 5
  {program} classify my-bert "A sentence to judge."

MODEL is a checkpoint of `train --kind vit`, or a folder with a ViT or a DeiT, or with a BERT that has a classifier, as
`transformers` saves it. Pictures may be of any size and of any kind that Pillow reads; what becomes of them is said in
the folder's preprocessor_config.json. Each line is an input, a class and its probability, separated by tabs: the most
probable class, or --count of them, by the names that the folder gives them (id2label).
"""

import argparse

import numpy as np

from ..data.digits import digits
from ..decoding import Classifier
from ..models import ViT
from .backend import add_backend_options, chosen_backend
from .common import Parser, add_option, check_utf8, heavy_work, one_line, path_name, positive_int, whole_number
from .model_argument import about, open_model

AT_ONCE = 32
"""Inputs that are classified before their classes are printed."""

HELP = "classify pictures with a ViT, or texts with a BERT"


def add_options(parser: Parser) -> None:
    """Declare the options of `classify`."""
    add_option(parser, "model", "MODEL", path_name, "a checkpoint, a folder of `save_pretrained`, or a hub's name")
    inputs = parser.add_argument("inputs", nargs="*", metavar="INPUT", help="pictures' files, or texts for a BERT")
    help_text = "numbers of scikit-learn's held-out digits; the true class is shown too"
    add_option(parser, "--digits", "N", whole_number(least=0), help_text, nargs="+")
    add_option(parser, "--count", "N", positive_int, "classes for each input (default: 1)", default=1)
    add_backend_options(parser)
    parser.set_defaults(trailing=inputs)


def run(args: argparse.Namespace) -> int:
    """Print each input with its classes."""
    if bool(args.inputs) == (args.digits is not None):
        raise ValueError("name what to classify: pictures or texts, or --digits, one of the two")
    backend = chosen_backend(args)
    with heavy_work():
        model, tokenizer, _ = open_model(args.model, backend)
        with about(args.model):
            classifier = Classifier(model, tokenizer)
        names, inputs = args.inputs, args.inputs
        if isinstance(model, ViT) and args.digits is not None:
            names, images = held_out(args.digits)
            inputs = list(images)
        elif args.digits is not None:
            raise ValueError(f"--digits are pictures, and {args.model} classifies texts")
        elif not isinstance(model, ViT):
            for number, text in enumerate(inputs, start=1):
                check_utf8(f"input {number}", text)
        for start in range(0, len(inputs), AT_ONCE):  # what is done is shown
            part = slice(start, start + AT_ONCE)
            for name, guesses in zip(names[part], classifier.classify(inputs[part], args.count), strict=True):
                for guess in guesses:
                    print(f"{one_line(name)}\t{one_line(guess.text)}\t{guess.probability:.4f}", flush=True)
    return 0


def held_out(numbers: list[int]) -> tuple[list[str], np.ndarray]:
    """Names and images of held-out digits. Raises ValueError for a number beyond their count."""
    _, valid = digits()
    for number in numbers:
        if number >= len(valid):
            raise ValueError(f"--digits {number}: there are {len(valid)} held-out digits, 0 to {len(valid) - 1}")
    return [f"digit {number}, a {valid.classes[number]}" for number in numbers], valid.images[numbers]
