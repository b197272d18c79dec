"""Turn texts into vectors, one a text.

examples:
  {program} embed sentence-transformers/all-MiniLM-L6-v2 "A dog barks." "A cat sleeps."
  {program} embed my-bert --file sentences.txt --out vectors.npy

MODEL is a folder with a BERT, a RoBERTa or a DistilBERT as `transformers` or sentence-transformers saves it, a name on
the Hugging Face hub, or a checkpoint of `train --kind bert`. The vector is the mean of the last layer's hidden states,
unless the folder's modules.json says otherwise. Each line is a vector, its numbers separated by tabs. Line n of --file
is vector n, a blank one too: it is the empty text. A text with more tokens than the folder allows is cut.
"""

import argparse
import sys

import numpy as np

from ..data.sentence_pairs import read_lines
from ..decoding import Embedder, with_tokenizer
from ..system.atomic import atomic_write
from .backend import add_backend_options, chosen_backend
from .common import Parser, add_option, check_utf8, heavy_work, path_name, say
from .model_argument import about, open_model
from .outputs import STANDARD_OUTPUT, check_output

HELP = "turn texts into vectors with a BERT"


def add_options(parser: Parser) -> None:
    """Declare the options of `embed`."""
    texts = add_text_options(parser, "the lines of a file (UTF-8, .gz too)")
    add_option(parser, "--out", "FILE.npy", path_name, "write all vectors into a file of NumPy's, and print none")
    add_backend_options(parser)
    parser.set_defaults(trailing=texts)


def add_text_options(parser: Parser, of_file: str) -> argparse.Action:
    """Add a model of vectors, its texts, which are returned, and a file with more."""
    add_option(parser, "model", "MODEL", path_name, "a checkpoint, a folder of `save_pretrained`, or a hub's name")
    texts = parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts")
    add_option(parser, "--file", "FILE", path_name, of_file)
    return texts


def run(args: argparse.Namespace) -> int:
    """Print the vector of each text, or write them all."""
    if bool(args.texts) == (args.file is not None):
        raise ValueError("name what to embed: texts, or --file, one of the two")
    check_output("--out", args.out, [args.model, args.file])
    check_output("standard output", STANDARD_OUTPUT, [args.file])  # it would read its own output
    with heavy_work():
        embedder = open_embedder(args)
        texts = args.texts if args.file is None else read_lines(args.file)
        if args.out is not None:
            vectors = embedder.embed(texts, progress=True)
            check_lines(args.file, len(vectors))
            with atomic_write(args.out) as file:
                np.save(file, vectors)
            say("{}: {:,} vectors of {:,} numbers".format(args.out, *vectors.shape))
            return 0
        for _, vectors in embedder.stream(texts, progress=args.file is not None and not sys.stdout.isatty()):
            for vector in vectors:
                print("\t".join(map(str, vector)))
    return 0


def check_lines(file: str | None, count: int) -> None:
    """Raise ValueError for a file without a line."""
    if count == 0:
        raise ValueError(f"{file} holds no line")


def open_embedder(args: argparse.Namespace) -> Embedder:
    """Return the embedder that a command names. Raises ValueError for a model that makes no vectors, and for texts
    that are not UTF-8.
    """
    for number, text in enumerate(args.texts, start=1):
        check_utf8(f"text {number}", text)
    model, tokenizer, _ = with_tokenizer(args.model, open_model(args.model, chosen_backend(args)))
    with about(args.model):
        return Embedder(model, tokenizer)
