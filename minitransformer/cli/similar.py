"""Say how similar texts are: the cosine of the angle between their vectors.

examples:
  {program} similar sentence-transformers/all-MiniLM-L6-v2 "A dog barks." "A puppy yaps." "It rains."
  {program} similar sentence-transformers/all-MiniLM-L6-v2 "Where do birds sleep?" --file sentences.txt --count 3

MODEL is one of `embed`. Each pair of the texts gets a line, the most similar first: the cosine and both texts. With
--file each text gets the --count lines of the file that are nearest to it, but no blank ones: the cosine, the line's
number and the line.
Texts with the same meaning have cosines near 1, and many models give 0 to texts that have nothing in common.
"""

import argparse
from heapq import nlargest
from itertools import chain, combinations

from ..data.sentence_pairs import read_lines
from ..decoding import unit
from .backend import add_backend_options
from .common import Parser, add_option, heavy_work, one_line, positive_int
from .embed import add_text_options, check_lines, open_embedder
from .outputs import STANDARD_OUTPUT, check_output

HELP = "say how similar texts are, or find the lines of a file that are nearest to a text"


def add_options(parser: Parser) -> None:
    """Declare the options of `similar`."""
    texts = add_text_options(parser, "find the nearest lines of a file (UTF-8, .gz too)")
    add_option(parser, "--count", "N", positive_int, "lines of the file for each text (default: 5)", default=5)
    add_backend_options(parser)
    parser.set_defaults(trailing=texts)


def run(args: argparse.Namespace) -> int:
    """Print the cosines of pairs, or the nearest lines of a file."""
    if len(args.texts) < 2 - (args.file is not None):
        raise ValueError("name two texts or more, or one and --file with the lines to compare it with")
    check_output("standard output", STANDARD_OUTPUT, [args.file])  # it would read its own output
    with heavy_work():
        embedder = open_embedder(args)
        vectors = unit(embedder.embed(args.texts))
        if args.file is None:
            pairs = combinations(range(len(args.texts)), 2)
            for cosine, i, j in sorted(((vectors[i] @ vectors[j], i, j) for i, j in pairs), key=lambda each: -each[0]):
                print(f"{cosine:.4f}\t{one_line(args.texts[i])}\t{one_line(args.texts[j])}")
            return 0
        nearest = [list[tuple[float, int, str]]() for _ in args.texts]
        first = 1
        for lines, others in embedder.stream(read_lines(args.file), progress=True):
            numbers, cosines = range(first, first + len(lines)), vectors @ unit(others).T  # (texts, lines)
            for best, row in zip(nearest, cosines.tolist(), strict=True):
                found = (each for each in zip(row, numbers, lines, strict=True) if each[2].strip())
                best[:] = nlargest(args.count, chain(best, found), key=lambda each: each[0])
            first += len(lines)
        check_lines(args.file, len(nearest[0]))
    for place, best in enumerate(nearest):
        if place:
            print()
        for cosine, number, line in best:
            print(f"{cosine:.4f}\t{number}\t{one_line(line)}")
    return 0
