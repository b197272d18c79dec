"""Write a page that shows what a model of any size does with one text: one file that works offline.

examples:
  {program} inside gpt2 "The capital of France is" --out inside.html
  {program} inside SmolLM2-135M-Instruct.Q4_1.gguf "Once upon a time" --max-tokens 20 --out inside.html
  {program} inside bert-base-uncased "Paris is the [MASK] of France." --out inside.html
  {program} inside runs/demo/model.safetensors "The old teacher reads a book." --out inside.html

The page shows each head's attention, what the model would say after each layer, what the parts of each layer add, and
the neurons that fire most. It holds no weights: all is recorded here, in one run. MODEL is a checkpoint, a folder of
`save_pretrained`, a GGUF file or a hub's name of a model that reads texts. An encoder–decoder writes its output first.
A text has at most 256 tokens.
"""

import argparse
from pathlib import Path

from ..decoding import with_tokenizer
from ..inside.page import look_inside
from .backend import add_backend_options, chosen_backend
from .common import Parser, add_option, as_bytes, check_utf8, heavy_work, path_name, say, whole_number
from .model_argument import about, open_model
from .outputs import check_output

HELP = "write a page that shows what a model does with a text, layer by layer"


def add_options(parser: Parser) -> None:
    """Declare the options of `inside`."""
    help_text = "a checkpoint, a folder of `save_pretrained`, a GGUF file, or a hub's name"
    add_option(parser, "model", "MODEL", path_name, help_text)
    add_option(parser, "text", "TEXT", str, "what the model reads; a BERT's may have [MASK]")
    add_option(parser, "--out", "FILE.html", path_name, "where the page goes", required=True)
    help_text = "tokens that the model writes at most (default: none, and for an encoder–decoder until it ends)"
    add_option(parser, "--max-tokens", "N", whole_number(0), help_text)
    add_backend_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and say what it weighs."""
    check_utf8("the text", args.text)
    check_output("--out", args.out, [args.model])
    backend = chosen_backend(args)
    with heavy_work():
        model, tokenizer, _ = with_tokenizer(args.model, open_model(args.model, backend))
        name = Path(args.model).name
        with about(args.model):
            tokens, size = look_inside(model, tokenizer, args.text, args.out, name=name, max_tokens=args.max_tokens)
    say(f"{args.out}: {tokens} tokens, {as_bytes(size)}; open it in a browser, it needs nothing else")
    return 0
