"""`evaluate`: how good a model's translations of a test set are."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitransformer.atomic import atomic_write
from minitransformer.data import multi30k
from minitransformer.data.corpus import Corpus, ParallelFiles, corpus_from_folder
from minitransformer.data.grammar import pairs as grammar_pairs
from minitransformer.evaluation import evaluate
from minitransformer.translator import Translator

from .common import add_decoding_options, add_threads_option, heavy_work, one_line, progress_wanted, say
from .preparation import DATASETS, grammar_language

GRAMMAR_SENTENCES = 1000

EPILOG = """\
examples:
  {program} evaluate runs/captions/step-00004000.safetensors --dataset multi30k
  {program} evaluate runs/captions/step-00004000.safetensors --dataset multi30k --split valid --beam 1
  {program} evaluate model.safetensors --source test.en --reference test.de --output translated.de
  {program} evaluate model.safetensors --data my_corpus --source-language en --language it

BLEU is sacrebleu's, on text as it is; its signature says how it was computed.
"""


def add_parser(commands: Any) -> None:
    """Add the command with its options."""
    parser = commands.add_parser(
        "evaluate",
        help="BLEU and exact matches on a test set",
        description="Translate a test set and compare the result with its references.",
        epilog=EPILOG,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a file that `train` or `demo` saved")
    test_set = parser.add_argument_group("the test set")
    test_set.add_argument("--source", metavar="FILE", help="sentences, one a line; goes with --reference")
    test_set.add_argument("--reference", metavar="FILE", help="their translations, line by line")
    test_set.add_argument("--dataset", choices=DATASETS, help="a built-in test set")
    test_set.add_argument("--data", metavar="DIR", help="a folder with test.en and test.de, as for `train`")
    help_text = "part of --dataset or --data (default: test)"
    test_set.add_argument("--split", choices=("test", "valid"), default="test", help=help_text)
    test_set.add_argument("--source-language", metavar="LANG", default="en", help="of --data (default: en)")
    test_set.add_argument("--language", metavar="LANG", default="de", help="of the translations (default: de)")
    add_decoding_options(parser)
    parser.add_argument("--truncate", action="store_true", help="cut sentences that are too long instead of stopping")
    parser.add_argument("--output", metavar="FILE", help="write the translations, one a line")
    add_threads_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Translate, score, write and print."""
    sources, references = read_test_set(args)
    with heavy_work(args.threads):
        translator = Translator.from_checkpoint(args.checkpoint)
        hypotheses = translator.translate(
            sources, args.beam, args.length_penalty, truncate=args.truncate, progress=progress_wanted()
        )
    if args.output:
        write_lines(Path(args.output), hypotheses)
    score = evaluate(hypotheses, references)
    say(f"{'sentences':20}{score.num_sentences:8,}")
    say(f"{'BLEU, cased':20}{score.bleu:8.2f}    {score.signature}")
    say(f"{'BLEU, lower-cased':20}{score.bleu_lowercase:8.2f}    {score.signature_lowercase}")
    say(f"{'exact match':20}{score.exact_match:8.2f} %")
    if args.output:
        say(f"{'translations':20}    {args.output}")
    return 0


def read_test_set(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The sentences and their references. Raises ValueError unless the options name one test set."""
    files = args.source is not None or args.reference is not None
    if [files, args.dataset is not None, args.data is not None].count(True) != 1:
        raise ValueError("name one test set: --source FILE with --reference FILE, or --dataset, or --data DIR")
    if files:
        if args.source is None or args.reference is None:
            raise ValueError("--source and --reference go together: sentences and their translations")
        pairs = ParallelFiles(Path(args.source), Path(args.reference)).read()
    elif args.dataset == "grammar":
        pairs = grammar_pairs(args.split, 0, grammar_language(args.language), GRAMMAR_SENTENCES)
    elif args.dataset == "multi30k":
        pairs = split_of(multi30k.load(args.language), args.split, "Multi30k").read()
    else:
        corpus = corpus_from_folder(args.data, args.source_language, args.language)
        pairs = split_of(corpus, args.split, args.data).read()
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)


def split_of(corpus: Corpus, split: str, name: str) -> ParallelFiles:
    """The files of a split; raises FileNotFoundError where the corpus has none."""
    files = corpus.test if split == "test" else corpus.valid
    if files is None:
        raise FileNotFoundError(f"{name} has no test set: choose --split valid")
    return files


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a file of one sentence a line."""
    with atomic_write(path) as file:
        file.writelines(one_line(line).encode("utf-8", "replace") + b"\n" for line in lines)
