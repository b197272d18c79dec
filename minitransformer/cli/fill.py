"""Guess what stands in the gaps of a text.

examples:
  {program} fill runs/grammar-en-bert/step-00004000.safetensors "The [MASK] reads a book."
  {program} fill bert-base-uncased "Paris is the [MASK] of France." --count 3
  {program} fill roberta-base "Paris is the <mask> of France."
  {program} fill t5-small "The <extra_id_0> reads <extra_id_1> book."

MODEL is a checkpoint of `train --kind bert` or of `train --kind t5 --text`, a folder with a BERT, a RoBERTa or a T5 as
`transformers` saves it, or a name on the Hugging Face hub. A BERT's gap is a [MASK], one token, which a RoBERTa calls
<mask>; a T5's gaps have any length and are numbered from 0. Each gap gets lines of its own: what may stand there and
its probability, separated by a tab. A T5's probability is that of all gaps together.
"""

import argparse

from ..decoding import Filler, SpanFiller, with_tokenizer
from ..models import T5Config
from .backend import add_backend_options, chosen_backend
from .common import MOST_BEAMS, Parser, add_option, check_utf8, heavy_work, one_line, path_name, whole_number
from .model_argument import about, open_model

HELP = "guess what stands in the gaps of a text with a BERT or a T5"


def add_options(parser: Parser) -> None:
    """Declare the options of `fill`."""
    add_option(parser, "model", "MODEL", path_name, "a checkpoint, a folder of `save_pretrained`, or a hub's name")
    add_option(parser, "text", "TEXT", str, "a text with [MASK], <mask> or <extra_id_0> for each gap")
    help_text = "guesses for each gap (default: 5)"
    add_option(parser, "--count", "N", whole_number(most=MOST_BEAMS), help_text, default=5)
    add_backend_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the best guesses of each gap."""
    check_utf8("the text", args.text)
    backend = chosen_backend(args)
    with heavy_work():
        model, tokenizer, _ = with_tokenizer(args.model, open_model(args.model, backend))
        with about(args.model):
            filler = SpanFiller(model, tokenizer) if isinstance(model.config, T5Config) else Filler(model, tokenizer)
        gaps = filler.fill(args.text, args.count)
    for number, guesses in enumerate(gaps):
        if number:
            print()
        for guess in guesses:
            print(f"{one_line(guess.text)}\t{guess.probability:.4f}")
    return 0
