"""Translate a test set and compare the result with its references, or see how good a language model is.

examples:
  {program} evaluate runs/captions/step-00004000.safetensors --dataset multi30k
  {program} evaluate runs/captions/step-00004000.safetensors --dataset multi30k --split valid --beam 1
  {program} evaluate model.safetensors --input test.en --reference test.de --output translated.de
  {program} evaluate model.safetensors --data my_corpus --source en --target it
  {program} evaluate runs/stories/step-00003000.safetensors --text more-stories.txt
  {program} evaluate gpt2 --text wikipedia.txt --context 512 --stride 256
  {program} evaluate runs/grammar-en-gpt/step-00003000.safetensors --samples 400

BLEU is sacrebleu's, on text as it is; its signature says how it was computed. With --text or --samples, CHECKPOINT is a
GPT's, or a folder with a GPT-2 or a Llama as `transformers` saves it. With --samples the model writes sentences, and
the grammar's parser judges them. Under torchrun processes share the sentences, or the text; one to eight of them give
the same result. All of them need the same model, test set and options.
"""

import argparse
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from ..costs import reading_bytes
from ..data import BPETokenizer, multi30k
from ..data.preparation import DATASETS, CorpusChoice
from ..data.sentence_pairs import ParallelFiles, read_lines
from ..decoding import Generator, Sampling, with_tokenizer
from ..decoding.tokenizer import check_ids, check_vocabulary
from ..evaluation import TextScore, evaluate, text_nats
from ..grammar import translate
from ..models import GPT, GPTConfig
from ..training.parallel.launch import facts_of, local_size
from ..training.parallel.processes import Processes
from ..training.parallel.shards import SHARDS
from .backend import Backend, add_backend_options, chosen_backend
from .common import (
    Parser,
    add_option,
    add_timeout_option,
    add_translation_options,
    heavy_work,
    in_groups,
    language,
    one_line,
    path_name,
    positive_int,
    say,
    silent_unless,
    whole_number,
    write_lines,
)
from .model_argument import add_bits_option, add_checkpoint_argument, open_model, open_translator
from .outputs import check_output

HELP = "BLEU and exact matches on a test set; a language model's perplexity"

MOST_SAMPLES = 10_000
SHARE = 0.5
"""The part of the memory beside the weights that windows of the default length may take."""

TOGETHER = 250
"""Sentences that a language model writes at a time."""


def add_options(parser: Parser) -> None:
    """Declare the options of `evaluate`."""
    add_checkpoint_argument(parser)
    group = parser.add_argument_group("the test set")
    add_option(group, "--input", "FILE", path_name, "sentences, one a line; goes with --reference")
    add_option(group, "--reference", "FILE", path_name, "their translations, line by line")
    group.add_argument("--dataset", choices=DATASETS, help="a built-in test set")
    add_option(group, "--text", "FILE", path_name, "a text for a language model (UTF-8, .gz too)")
    help_text = "tokens of the windows that read the text (default: the model's longest text, if memory allows)"
    add_option(group, "--context", "N", positive_int, help_text)
    help_text = "new tokens in each of the windows that read the text (default: half a window)"
    add_option(group, "--stride", "N", positive_int, help_text)
    help_text = "sentences that a language model writes and the grammar's parser judges"
    add_option(group, "--samples", "N", whole_number(most=MOST_SAMPLES), help_text)
    add_option(group, "--data", "DIR", path_name, "a folder with test.en and test.de, as for `train`")
    help_text = "part of --dataset or --data (default: test)"
    group.add_argument("--split", choices=("test", "valid"), default="test", help=help_text)
    help_text = "language of --dataset or --data to translate {} (default: the training's, or {} if unknown)"
    add_option(group, "--source", "LANG", language, help_text.format("from", "en"))
    add_option(group, "--target", "LANG", language, help_text.format("into", "de"))
    add_translation_options(parser)
    parser.add_argument("--truncate", action="store_true", help="cut sentences that are too long instead of stopping")
    add_option(parser, "--output", "FILE", path_name, "write the translations, one a line")
    add_bits_option(parser)
    add_backend_options(parser)
    add_timeout_option(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate what the options name: translations, a language model on a text, or what it writes."""
    if args.text is not None or args.stride is not None or args.context is not None:
        evaluate_it = evaluate_text
        check_text_options(args)
    elif args.samples is not None:
        evaluate_it = evaluate_samples
        check_alone("samples", args)
    else:
        evaluate_it = evaluate_translations
        check_options(args)
    backend = chosen_backend(args)
    with heavy_work(), Processes.join(backend.device, args.timeout) as processes, silent_unless(processes.first):
        processes.where = "in the evaluation"
        return evaluate_it(args, backend, processes)


def evaluate_translations(args: argparse.Namespace, backend: Backend, processes: Processes) -> int:
    """Translate the test set, write the translations and print their scores."""
    with processes.together():
        translator = open_translator(args.checkpoint, backend, args.threads, args.bits)
        translator.forks = not processes.launched  # those of torchrun have threads that hold a connection
        sources, references = read_test_set(args, translator.languages)
        translator.encode(sources, args.truncate)  # refuses what is too long
    agree(processes, args, translator.model, sources, references)
    translate = partial(
        translator.translate,
        beam=args.beam,
        length_penalty=args.length_penalty,
        truncate=args.truncate,
        progress=processes.first,
    )
    groups = max(SHARDS, processes.size) if processes.launched else 1  # a sentence's batch decides its last bits
    translations = in_groups(translate, sources, groups, shared_map(processes))
    hypotheses = [one_line(text) for text in translations]  # scored as they are written
    with processes.together():
        if args.output and processes.first:
            write_lines(Path(args.output), hypotheses)
    score = evaluate(hypotheses, references)
    say(f"{'sentences':20}{score.num_sentences:8,}")
    say(f"{'BLEU, cased':20}{score.bleu:8.2f}    {score.signature}")
    say(f"{'BLEU, lower-cased':20}{score.bleu_lowercase:8.2f}    {score.signature_lowercase}")
    say(f"{'exact match':20}{score.exact_match:8.2f} %")
    if args.output:
        say(f"{'translations':20}    {args.output}")
    return 0


def evaluate_text(args: argparse.Namespace, backend: Backend, processes: Processes) -> int:
    """Print the perplexity of a text, and the bits for a byte of it."""
    with processes.together():
        model, tokenizer = open_language_model(args.checkpoint, backend, args.bits)
        lines = list(read_lines(args.text))
    agree(processes, args, model, lines)
    context = args.context or min(processes.gathered(fitting_context(args, model.config, backend, processes)))
    if args.context is None and context < model.config.max_length:
        most = f"of the model's {model.config.max_length:,} tokens: more take too much memory"
        say(f"{'window':20}{context:12,}    {most}; --context N sets it")
    score = score_of(model, tokenizer, lines, args.stride, shared_map(processes), context)
    say(f"{'tokens':20}{score.num_tokens:12,}")
    say(f"{'bytes':20}{score.num_bytes:12,}")
    say(f"{'perplexity':20}{score.perplexity:12.3f}")
    say(f"{'bits per byte':20}{score.bits_per_byte:12.4f}")
    return 0


def evaluate_samples(args: argparse.Namespace, backend: Backend, processes: Processes) -> int:
    """Print how many of a language model's own sentences are grammatical."""
    with processes.together():
        model, tokenizer = open_language_model(args.checkpoint, backend, args.bits)
        generator = Generator(model, tokenizer)
    agree(processes, args, model)

    def write(start: int) -> list[str]:
        number = min(args.samples - start, TOGETHER)
        return generator.generate([""] * number, model.config.max_length, Sampling(seed=start))

    written = shared_map(processes)(write, range(0, args.samples, TOGETHER))
    sentences = [each for some in written for each in some]
    right = sum(is_sentence(each.strip()) for each in sentences)
    say(f"{'sentences':20}{len(sentences):8,}")
    say(f"{'different':20}{len(set(sentences)):8,}")
    say(f"{'grammatical':20}{100 * right / len(sentences):8.2f} %")
    return 0


def fitting_context(args: argparse.Namespace, config: GPTConfig, backend: Backend, processes: Processes) -> int:
    """Return the length of the model's longest text, halved until a window fits into this process's memory.

    It follows from the machine and the limits of the system, not from what else runs: a score can be had again.
    """
    memory, context = backend.memory(), config.max_length
    if memory is None:
        return context
    sharing = local_size() if processes.launched and not backend.device.startswith("cuda") else 1  # a GPU has one
    weights = config.weight_bytes(backend.dtype, args.bits)
    in_blocks, free = args.backend != "torch", SHARE * (memory / sharing - weights)
    while context > 1 and reading_bytes(config, context, in_blocks, backend.dtype) > free:
        context //= 2
    return context


def agree(processes: Processes, args: argparse.Namespace, model: Any, *texts: list[str]) -> None:
    """Raise ValueError, naming it, if a process has another model, test set or option than the first one."""
    lines = [line for text in texts for line in text]
    checksum = zlib.crc32("\n".join(lines).encode())
    names = ("beam", "length_penalty", "truncate", "stride", "context", "samples", "bits")
    options = {name: getattr(args, name) for name in names}
    test_set = {"test set": f"{len(lines):,} lines with the checksum {checksum}"}
    processes.agree(**test_set, options=options, **facts_of(model))


def shared_map(processes: Processes) -> Callable[..., list[Any]]:
    """`map` whose work the processes share, as long as their launcher lives."""
    return partial(processes.map, while_launched=True)


def is_sentence(text: str) -> bool:
    """Return True if the grammar forms a text."""
    try:
        translate(text)
    except ValueError:
        return False
    return True


def check_text_options(args: argparse.Namespace) -> None:
    """Raise ValueError for a window without --text, and for an option of pairs or samples beside it."""
    if args.text is None:
        raise ValueError(f"--{'context' if args.stride is None else 'stride'} goes with --text")
    check_alone("text", args, "samples")


def check_alone(name: str, args: argparse.Namespace, *more: str) -> None:
    """Raise ValueError if an option is given that is of pairs, or one of `more`."""
    for other in ("input", "reference", "dataset", "data", "source", "target", "output", *more):
        if getattr(args, other) is not None:
            raise ValueError(f"--{other} does not go with --{name}")


def open_language_model(name: str, backend: Backend, bits: int | None = None) -> tuple[GPT, Any]:
    """Return a language model and its tokenizer. Raises ValueError for another model."""
    model, tokenizer, _ = with_tokenizer(name, open_model(name, backend, bits))
    if not isinstance(model, GPT):
        raise ValueError(f"{name} holds a model of kind {model.config.kind!r}, not a language model")
    check_vocabulary(model.config, tokenizer)
    return model, tokenizer


def score_of(
    model: GPT,
    tokenizer: Any,
    lines: list[str],
    stride: int | None,
    map: Callable[..., Iterable[Any]] = map,
    context: int | None = None,
) -> TextScore:
    """Return a model's score on lines. For a tokenizer of ours each is a text of its own, without blank lines."""
    config = model.config
    mark = config.eos_id if config.bos_id is None else config.bos_id
    if isinstance(tokenizer, BPETokenizer):
        lines = [line for line in lines if line.strip()]
        ids = [token for line in lines for token in (*tokenizer.encode(line), tokenizer.eos_id)]
        num_bytes = sum(len(line.encode()) + 1 for line in lines)
    else:
        text = "".join(line + "\n" for line in lines)
        first, ids, _ = tokenizer.around(text)
        check_ids(config, tokenizer, ids)
        num_bytes = len(text.encode())
        mark = first[-1] if first else config.bos_id if config.bos_id == config.eos_id else None  # GPT-2's is both
    if mark is None:  # the first token has nothing before it
        mark, ids = (ids or [0])[0], ids[1:]
    if not ids:
        raise ValueError("the text is empty")
    return TextScore(text_nats(model, ids, mark, stride, map, context), len(ids), num_bytes)


def check_options(args: argparse.Namespace) -> None:
    """Raise ValueError unless the options name one test set, and an output that overwrites none of it."""
    cache = multi30k.default_cache_dir() if args.dataset == "multi30k" else None
    check_output("--output", args.output, [args.checkpoint, args.input, args.reference, args.data, cache])
    files = [args.input is not None, args.reference is not None]
    if [any(files), args.dataset is not None, args.data is not None].count(True) != 1:
        raise ValueError(
            "name one test set: --input FILE with --reference FILE, or --dataset, or --data DIR; "
            "for a language model --text FILE or --samples N"
        )
    if any(files) and not all(files):
        raise ValueError("--input and --reference go together: sentences and their translations")
    if any(files) and (args.source or args.target):
        raise ValueError("--source and --target go with --dataset or --data: --input and --reference are what they are")


def read_test_set(args: argparse.Namespace, languages: tuple[str, str] | None) -> tuple[list[str], list[str]]:
    """Return the sentences and their references, by default in the model's languages."""
    if args.input is not None:
        pairs = ParallelFiles(Path(args.input), Path(args.reference)).read()
    else:
        source, target = languages or (CorpusChoice.source, CorpusChoice.target)
        choice = CorpusChoice(
            dataset=args.dataset, data=args.data, source=args.source or source, target=args.target or target
        )
        pairs = choice.pairs(args.split)
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)
