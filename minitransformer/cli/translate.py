"""Translate sentences with a trained model.

examples:
  {program} translate runs/demo/model.safetensors "The dog sleeps." "A cat eats a fish."
  {program} translate runs/demo/model.safetensors --file english.txt > german.txt
  zcat corpus.en.gz | {program} translate runs/demo/model.safetensors --beam 1 > corpus.de
  {program} translate runs/demo/model.safetensors --n-best 4 "The dog sleeps."
  {program} translate runs/demo/model.safetensors --attention maps.png "The dog sleeps."
  {program} translate t5-small "translate English to German: The dog sleeps."
  {program} translate runs/demo/model.safetensors

The lines of a file or of standard input are translated some thousand at a time, shared by processes: a file of any
length takes the same memory, and its lines keep their order. A bar shows the sentences a second.

CHECKPOINT is also a folder with a Marian or a T5 as `transformers` saves it, or a name on the Hugging Face hub. A T5's
task stands before the sentence: "translate English to German: The dog sleeps." Without a sentence the command asks
for them, or reads them from standard input, one a line. Each line gives one line, in the same order; an empty line
gives an empty one. With --n-best each sentence gives N lines: its number, the score (the log-probability over the
length penalty) and the translation, separated by tabs; an empty line gives one.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..data.sentence_pairs import MAX_LINE_BYTES, decode_line, read_lines
from ..decoding import WINDOW, Translation, Translator
from ..models import most_tokens
from .backend import add_backend_options, chosen_backend
from .common import (
    Parser,
    add_option,
    add_translation_options,
    check_utf8,
    heavy_work,
    one_line,
    path_name,
    positive_int,
    say,
)
from .model_argument import add_checkpoint_argument, open_translator
from .outputs import STANDARD_INPUT, STANDARD_OUTPUT, check_output

HELP = "translate sentences, with scores and attention maps if you like"

FIRST_OF_A_PIPE = 64
"""Sentences read from standard input before the first are translated: whoever writes them may wait for an answer."""


class Line(NamedTuple):
    """A sentence and its place, for error messages."""

    text: str
    place: str


def add_options(parser: Parser) -> None:
    """Declare the options of `translate`."""
    add_checkpoint_argument(parser)
    sentences = parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="what to translate")
    add_option(parser, "--file", "FILE", path_name, "translate the lines of a file (UTF-8, .gz too)")
    add_translation_options(parser)
    add_option(parser, "--n-best", "N", positive_int, "show the N best, with their scores")
    parser.add_argument("--truncate", action="store_true", help="cut a sentence that is too long instead of stopping")
    help_text = f"sentences read before they are translated (default: {WINDOW:,} of a file, fewer at first of a pipe)"
    add_option(parser, "--batch-size", "N", positive_int, help_text)
    add_option(parser, "--attention", "FILE.png", path_name, "draw what each head attends to, for one sentence")
    add_backend_options(parser)
    parser.set_defaults(trailing=sentences)


def run(args: argparse.Namespace) -> int:
    """Translate the sentences and print the translations, batch by batch."""
    if args.n_best is not None and args.n_best > args.beam:
        raise ValueError(f"--n-best {args.n_best} is more than --beam {args.beam}: the search keeps no more")
    standard_in = STANDARD_INPUT if not args.sentences and args.file is None else None
    check_output("--attention", args.attention, [args.checkpoint, args.file, standard_in])
    check_output("standard output", STANDARD_OUTPUT, [args.file, standard_in])  # it would read its own output
    backend = chosen_backend(args)
    with heavy_work():
        translator = open_translator(args.checkpoint, backend, args.threads)
        if standard_in is not None and not args.attention and sys.stdin is not None and sys.stdin.isatty():
            return converse(translator, args)
        sentences = checked(input_lines(args), translator, args.truncate)
        if args.attention:
            return translate_and_draw(translator, list(sentences), args)
        window = args.batch_size or WINDOW
        results = translator.stream(
            sentences,
            args.n_best or 1,
            args.beam,
            args.length_penalty,
            truncate=args.truncate,
            progress=not args.sentences and not sys.stdout.isatty(),
            first=window if args.file is not None else min(window, FIRST_OF_A_PIPE),
            window=window,
        )
        number = 0
        for translated in results:
            for translations in translated:
                number += 1
                show(translations, number, args)
            sys.stdout.flush()
    return 0


def translate(translator: Translator, sentences: list[str], args: argparse.Namespace) -> list[list[Translation]]:
    """Return the best translations of each sentence."""
    return translator.translate_n_best(
        sentences, args.n_best or 1, args.beam, args.length_penalty, truncate=args.truncate
    )


def checked(lines: Iterable[Line], translator: Translator, truncate: bool) -> Iterator[str]:
    """Yield the sentences. Raises ValueError, naming the place, for one too long for the model, unless `truncate`."""
    longest = most_tokens(translator.model.config)
    for line in lines:
        length = len(translator.tokenizer.encode(line.text)) + 1 if line.text.strip() else 0
        if length > longest and not truncate:
            raise ValueError(
                f"{line.place} has {length} tokens with its end mark, but the model takes at most {longest}: "
                "split it, or add --truncate"
            )
        yield line.text


def show(translations: list[Translation], number: int, args: argparse.Namespace) -> None:
    """Print the translations of sentence `number`."""
    for text, score in translations:
        print(f"{number}\t{score:.4f}\t{one_line(text)}" if args.n_best else one_line(text))


def converse(translator: Translator, args: argparse.Namespace) -> int:
    """Ask for a sentence and translate it, until the input ends."""
    say("Type a sentence and press Enter; Ctrl-D ends.")
    number = 0
    while True:
        try:
            line = Line(input("> "), "this sentence")
        except EOFError:
            say()
            return 0
        try:
            (translations,) = translate(translator, list(checked([line], translator, args.truncate)), args)
        except ValueError as error:
            say(f"minitransformer: error: {error}")
            continue
        number += 1
        show(translations, number, args)


def translate_and_draw(translator: Translator, sentences: list[str], args: argparse.Namespace) -> int:
    """Translate the only sentence, and draw its cross-attention in every layer and head."""
    from ..plots import plot_attention

    if len(sentences) != 1:
        raise ValueError(f"--attention draws one sentence, got {len(sentences)}")
    (translations,) = translate(translator, sentences, args)
    maps = translator.attention(
        sentences[0], beam=args.beam, length_penalty=args.length_penalty, truncate=args.truncate
    )
    title = f"Cross-attention: {sentences[0]}"
    plot_attention(maps.cross, maps.source_tokens, maps.target_tokens, args.attention, title=title)
    show(translations, 1, args)
    return 0


def input_lines(args: argparse.Namespace) -> Iterator[Line]:
    """Yield the sentences of the file, arguments or standard input as they arrive. Raises ValueError for bad UTF-8."""
    if args.sentences and args.file is not None:
        raise ValueError("sentences and --file do not go together")
    if args.file is not None:
        for number, text in enumerate(read_lines(args.file), start=1):
            yield Line(text, f"{args.file}, line {number}")
    elif args.sentences:
        for number, text in enumerate(args.sentences, start=1):
            check_utf8(f"sentence {number}", text)
            yield Line(text, f"sentence {number}")
    elif sys.stdin is None:
        raise ValueError("standard input is closed: give sentences, or --file FILE")
    else:
        lines = iter(lambda: sys.stdin.buffer.readline(MAX_LINE_BYTES + 1), b"")
        for number, data in enumerate(lines, start=1):
            place = f"standard input, line {number}"
            yield Line(decode_line(data, place), place)
