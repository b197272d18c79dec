"""Write a page on which a model is seen at work: one file that works offline.

examples:
  {program} explore runs/demo/model.safetensors --out explorer.html
  {program} explore runs/demo/model.safetensors --out explorer.html --examples sentences.txt
  {program} explore runs/captions/average.safetensors --out captions.html --int8
  {program} explore SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2.html --int8

The page holds the model, and computes it in the browser: it asks no server for anything. MODEL translates or continues
texts, or describes pictures: then the page has six to choose from, and draws over them where each word looks. Besides a
checkpoint MODEL may be a folder as `transformers` saves it, a GGUF file, or a name on the Hugging Face hub. A page
weighs 200 MB at most, which are 37 million parameters. With --int8 it weighs a quarter, and the command says what that
changes in the model's log-probabilities and in its greedy outputs.
"""

import argparse
from functools import partial
from itertools import islice
from pathlib import Path

from ..data.sentence_pairs import read_lines
from ..decoding import with_tokenizer
from ..explorer import Explored, explore
from .backend import NUMPY
from .common import Parser, add_option, as_bytes, heavy_work, path_name, say
from .model_argument import about, open_model
from .outputs import check_output

HELP = "write a page that shows a model at work, offline in a browser"

MOST_EXAMPLES, LONGEST_EXAMPLE = 200, 1000


def add_options(parser: Parser) -> None:
    """Declare the options of `explore`."""
    help_text = "a checkpoint, a folder of `save_pretrained`, a GGUF file, or a hub's name"
    add_option(parser, "checkpoint", "MODEL", path_name, help_text)
    add_option(parser, "--out", "FILE.html", path_name, "where the page goes", required=True)
    parser.add_argument("--int8", action="store_true", help="store the weights in a quarter of the bytes, less exactly")
    add_option(parser, "--examples", "FILE", path_name, "sentences to offer, one a line (default: the grammar's)")


def run(args: argparse.Namespace) -> int:
    """Write the page and say what it weighs."""
    check_output("--out", args.out, [args.checkpoint, args.examples])
    examples = [] if args.examples is None else read_examples(args.examples)
    with heavy_work():
        model, tokenizer, languages = with_tokenizer(args.checkpoint, open_model(args.checkpoint, NUMPY))
        shown = partial(explore, name=Path(args.checkpoint).name, languages=languages, examples=examples)
        with about(args.checkpoint):
            explored = shown(model, tokenizer, args.out, int8=args.int8, progress=True)
    report(args.out, explored)
    return 0


def read_examples(path: str) -> list[str]:
    """Return a file's lines that are not blank. Raises ValueError for none, for too many and for a long one."""
    lines = (line.strip() for line in read_lines(path))
    examples = list(islice(filter(None, lines), MOST_EXAMPLES + 1))
    if not examples:
        raise ValueError(f"--examples {path} holds no sentence")
    if len(examples) > MOST_EXAMPLES:
        raise ValueError(f"--examples {path} holds more than {MOST_EXAMPLES} sentences")
    longest = max(map(len, examples))
    if longest > LONGEST_EXAMPLE:
        raise ValueError(f"--examples {path} has a line of {longest} characters, expected at most {LONGEST_EXAMPLE}")
    return examples


def report(path: str, explored: Explored) -> None:
    """Print what was written, and what int8 costs."""
    say(f"{path}: {as_bytes(explored.num_bytes)}; open it in a browser, it needs nothing else")
    if explored.loss is not None:
        count, largest, mean, equal = explored.loss
        say(
            f"int8 changes log-probabilities by at most {largest:.3f} and by {mean:.4f} on average; "
            f"{equal} of {count} greedy outputs are equal"
        )
