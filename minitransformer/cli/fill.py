"""Guess the tokens that are masked in a text.

examples:
  {program} fill runs/grammar-en-bert/step-00004000.safetensors "The [MASK] reads a book."
  {program} fill bert-base-uncased "Paris is the [MASK] of France." --count 3

MODEL is a checkpoint of `train --kind bert`, a folder with a BERT as `transformers` saves it, or a name on the Hugging
Face hub. Each [MASK] gets lines of its own: a token and its probability, separated by a tab.
"""

import argparse

from ..decoding.filler import MASK, Filler
from .backend import add_backend_options, chosen_backend
from .common import Parser, add_option, heavy_work, one_line, path_name, positive_int
from .opened import open_model, with_tokenizer

HELP = "guess the masked tokens of a text with a BERT"


def add_options(parser: Parser) -> None:
    """Declare the options of `fill`."""
    add_option(parser, "model", "MODEL", path_name, "a checkpoint, a folder of `save_pretrained`, or a hub's name")
    add_option(parser, "text", "TEXT", str, f"a text with {MASK} for each token to guess")
    add_option(parser, "--count", "N", positive_int, "guesses for each gap (default: 5)", default=5)
    add_backend_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the best guesses of each gap."""
    if any("\ud800" <= character <= "\udfff" for character in args.text):  # Python's mark for bytes not in UTF-8
        raise ValueError("the text is not UTF-8")
    backend = chosen_backend(args)
    with heavy_work():
        filler = Filler(*with_tokenizer(args.model, open_model(args.model, backend)))
        gaps = filler.fill(args.text, args.count)
    for number, guesses in enumerate(gaps):
        if number:
            print()
        for guess in guesses:
            print(f"{one_line(guess.text)}\t{guess.probability:.4f}")
    return 0
