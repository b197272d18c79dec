"""Continue texts with a language model, which writes token by token, or talk to one.

examples:
  {program} generate runs/stories/step-00003000.safetensors "Once upon a time"
  {program} generate gpt2 "Once upon a time" --temperature 0.8 --top-p 0.9 --samples 3
  {program} generate my-llama --file prompts.txt --temperature 0 --max-tokens 40
  {program} generate gpt2 "The old teacher reads a" --lens lens.png
  {program} generate SmolLM2-135M-Instruct.Q4_1.gguf --chat --system "Answer in one sentence."
  {program} generate gpt2-large "Once upon a time" --draft gpt2

MODEL is a checkpoint of `train --kind gpt`, a folder with a GPT-2 or a Llama as `transformers` saves it, a GGUF file,
or a name on the Hugging Face hub. Without a prompt the model begins of itself, if it has a mark that begins a text. A
text ends where the model ends it, or after --max-tokens tokens.

With --chat, each prompt is what you say next, and the model answers. Without prompts you are asked for them, or they
are the lines of standard input. This needs the model's chat template, and the package jinja2.

A --draft proposes tokens, which the model reads together: a smaller model of the same vocabulary, layers:N for the
model's own first N layers, or prompt for what followed the same words before. Texts have the same distribution, and
with --temperature 0 they are the same; they come sooner if enough is accepted.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from ..config import help_of
from ..data.sentence_pairs import MAX_LINE_BYTES, decode_line, read_lines
from ..decoding import Draft, Generator, LayersDraft, ModelDraft, PromptDraft, Sampling, Tokenizer, with_tokenizer
from ..models import GPT, Captioner, EncoderDecoder
from ..system.visible import visible
from .backend import Backend, add_backend_options, chosen_backend
from .common import (
    MOST_BEAMS,
    Parser,
    add_field_options,
    add_option,
    check_utf8,
    given,
    heavy_work,
    path_name,
    positive_int,
    say,
    whole_number,
)
from .model_argument import add_bits_option, open_model
from .outputs import STANDARD_INPUT, STANDARD_OUTPUT, check_output

SAMPLING_OPTIONS = help_of(Sampling)
NEUTRAL = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
"""The values with which a file of `transformers` asks for nothing."""

HELP = "continue a text with a language model, or talk to one: GPT, GPT-2, Llama"


def add_options(parser: Parser) -> None:
    """Declare the options of `generate`."""
    help_text = "a checkpoint, a folder of `save_pretrained`, a GGUF file, or a hub's name"
    add_option(parser, "model", "MODEL", path_name, help_text)
    prompts = parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="texts to continue")
    add_option(parser, "--file", "FILE", path_name, "continue each line of a file (UTF-8, .gz too)")
    parser.add_argument("--chat", action="store_true", help="talk with the model")
    add_option(parser, "--system", "TEXT", str, "what a --chat begins with: how the model should answer")
    help_text = "tokens to write at most (default: 100, and 1,000 for an answer)"
    add_option(parser, "--max-tokens", "N", positive_int, help_text)
    add_option(parser, "--samples", "N", positive_int, "texts for each prompt (default: 1)", default=1)
    help_text = "search for the most probable text with a beam of this width, and draw nothing"
    add_option(parser, "--beam", "N", whole_number(most=MOST_BEAMS), help_text)
    help_text = "draw what the model would say after each layer, at each token of the one prompt"
    add_option(parser, "--lens", "FILE.png", path_name, help_text)
    help_text = "what proposes tokens: a smaller MODEL, layers:N (the model's own first) or prompt (the text itself)"
    add_option(parser, "--draft", "DRAFT", draft_name, help_text)
    add_option(parser, "--draft-tokens", "N", positive_int, "tokens that a draft proposes at a time (default: 4)")
    help_text = "keep the keys and values of a text in a byte each: a little more than a quarter of the memory, rounded"
    parser.add_argument("--cache-in-bytes", action="store_true", help=help_text)
    group = parser.add_argument_group("how the next token is chosen")
    add_field_options(group, Sampling, SAMPLING_OPTIONS, ())
    add_bits_option(parser)
    add_backend_options(parser)
    parser.set_defaults(trailing=prompts)


def run(args: argparse.Namespace) -> int:
    """Print each prompt with what the model writes after it, as it is written."""
    if args.prompts and args.file is not None:
        raise ValueError("prompts and --file do not go together")
    chosen = given(args, SAMPLING_OPTIONS)
    if args.beam is not None and (chosen or args.samples > 1):
        raise ValueError("a --beam draws nothing: it does not go with --samples or the options of sampling")
    if args.lens is not None and (len(args.prompts) != 1 or args.file is not None):
        raise ValueError(f"--lens draws one prompt, got {'a file' if args.file else len(args.prompts)}")
    if args.chat and (args.samples > 1 or args.beam is not None or args.lens is not None):
        raise ValueError("--chat does not go with --samples, --beam or --lens")
    if args.draft is not None and args.beam is not None:
        raise ValueError("--draft does not go with --beam")
    if args.draft_tokens is not None and args.draft is None:
        raise ValueError("--draft-tokens goes with --draft")
    if args.system is not None and not args.chat:
        raise ValueError("--system goes with --chat")
    check_utf8("--system", args.system or "")
    asked = STANDARD_INPUT if args.chat and not args.prompts and args.file is None else None
    check_output("--lens", args.lens, [args.model])
    check_output("standard output", STANDARD_OUTPUT, [args.file, asked])  # it would read its own output
    args.max_tokens = args.max_tokens or (1000 if args.chat else 100)
    sampling = Sampling(**chosen)
    backend = chosen_backend(args)
    with heavy_work():
        model, tokenizer, _ = with_tokenizer(args.model, open_model(args.model, backend, args.bits))
        if not isinstance(model, GPT):
            command = "caption" if isinstance(model, Captioner) else "translate"
            advice = f"; `{command}` shows what it writes" * isinstance(model, EncoderDecoder)
            raise ValueError(
                f"{args.model} holds a model of kind {model.config.kind!r}, which does not continue texts{advice}"
            )
        draft = None if args.draft is None else opened_draft(args, model, tokenizer, backend)
        generator = Generator(model, tokenizer, draft, args.cache_in_bytes)
        if chosen.keys() <= {"seed"} and args.beam is None and (advice := suggested(model)):
            print(f"{args.model} suggests {advice}, which counts if you give it", file=sys.stderr)
        if args.lens is not None:
            draw_lens(generator, args.prompts[0], args.lens)
        if args.chat:
            status = converse(generator, prompts(args) if asked is None else asked_for(), sampling, args)
        else:
            status = go_on(generator, sampling, args)
    if draft is not None:
        counts = f"{draft.proposed:,} tokens proposed, {draft.accepted:,} accepted"
        print(f"{counts}, {draft.calls:,} {'call' if draft.calls == 1 else 'calls'} of the model", file=sys.stderr)
    return status


def draft_name(text: str) -> str:
    """Read the name of a draft."""
    if text.startswith("layers:"):
        positive_int(text.removeprefix("layers:"))
    return path_name(text)


def opened_draft(args: argparse.Namespace, model: GPT, tokenizer: Tokenizer, backend: Backend) -> Draft:
    """Return the draft that the options name. Raises ValueError, as `open_model` does, and for other tokens."""
    name, count = args.draft, args.draft_tokens or 4
    if name == "prompt":
        return PromptDraft(model.config.vocab_size, count)
    if name.startswith("layers:"):
        return LayersDraft(model, int(name.removeprefix("layers:")), count)
    other, its, _ = with_tokenizer(name, open_model(name, backend))
    if not isinstance(other, GPT):
        raise ValueError(f"{name} holds a model of kind {other.config.kind!r}, which does not continue texts")
    ours, theirs = (each.tokens(range(each.vocab_size)) for each in (tokenizer, its))
    if ours != theirs or other.config.vocab_size != model.config.vocab_size:
        raise ValueError(f"{name} has other tokens than {args.model}: a draft needs the same vocabulary")
    return ModelDraft(other, count)


def suggested(model: GPT) -> str:
    """Return the options of sampling that the folder of a loaded model names, which may not be what a user wants."""
    said = getattr(model.origin, "generation", {})
    found = list[str]()
    for name, neutral in NEUTRAL.items():
        with suppress(TypeError, ValueError):  # of another kind, or out of bounds
            if said.get("do_sample") is not False and name in said and said[name] != neutral:
                Sampling(**{name: said[name]})
                found.append(f"--{name.replace('_', '-')} {said[name]}")
    return " ".join(found)


def prompts(args: argparse.Namespace) -> Iterator[str]:
    """Yield the prompts of the file or of the arguments. Raises ValueError for one that is not UTF-8."""
    if args.file is not None:
        yield from read_lines(args.file)
        return
    for number, prompt in enumerate(args.prompts or [""], start=1):
        check_utf8(f"prompt {number}", prompt)
        yield prompt


def go_on(generator: Generator, sampling: Sampling, args: argparse.Namespace) -> int:
    """Print each prompt with what the model writes after it, as often as there are samples."""
    for prompt in prompts(args):
        for number in range(args.samples):
            write(generator, prompt, replace(sampling, seed=(sampling.seed + number) % (sys.maxsize + 1)), args)
    return 0


def write(generator: Generator, prompt: str, sampling: Sampling, args: argparse.Namespace) -> None:
    """Print a prompt, and what comes after it as soon as it is there."""
    if args.beam is not None:
        (text,) = generator.generate(prompt, args.max_tokens, beam=args.beam)
        print(clean(prompt + text))
        return
    pieces = generator.stream(prompt, args.max_tokens, sampling)
    first = next(pieces, "")  # before the prompt is printed: it may be too long for the model
    print(clean(prompt + (first if prompt else first.lstrip(" "))), end="", flush=True)
    for piece in pieces:
        print(clean(piece), end="", flush=True)
    print()


def asked_for() -> Iterator[str]:
    """Yield what the user types, line by line, or the lines of standard input."""
    if sys.stdin is None:
        raise ValueError("standard input is closed: give prompts, or --file FILE")
    if not sys.stdin.isatty():
        for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(MAX_LINE_BYTES + 1), b""), start=1):
            yield decode_line(line, f"standard input, line {number}")
        return
    say("Type what you want to say and press Enter; Ctrl-D ends.")
    with suppress(EOFError):
        while True:
            yield input("> ")
    say()


def converse(generator: Generator, turns: Iterable[str], sampling: Sampling, args: argparse.Namespace) -> int:
    """Print the model's answer to each turn of the user. After an error, a user who types goes on."""
    messages = [] if args.system is None else [{"role": "system", "content": args.system}]
    typed = not args.prompts and args.file is None and sys.stdin is not None and sys.stdin.isatty()
    for text in filter(str.strip, turns):
        question, answer = {"role": "user", "content": text}, ""
        try:
            for piece in generator.stream([*messages, question], args.max_tokens, sampling):
                print(clean(piece if answer else piece.lstrip(" ")), end="", flush=True)
                answer += piece
        except ValueError as error:
            if not typed:
                raise
            say(f"minitransformer: error: {error}")
            continue
        print(flush=True)
        messages += [question, {"role": "assistant", "content": answer}]
    if not typed and (not messages or messages[-1]["role"] != "assistant"):
        raise ValueError("nothing was said: give prompts, --file FILE, or lines on standard input")
    return 0


def draw_lens(generator: Generator, prompt: str, path: str) -> None:
    """Draw what the model would say after each layer, at each token of the prompt."""
    from ..inside import logit_lens
    from ..plots import plot_logit_lens

    ids, names = generator.encode(prompt), generator.tokenizer.tokens
    title = "What the model would say next, after each of its layers"
    plot_logit_lens(logit_lens(generator.model, [ids])[:, 0], names(ids), names, path, title)


def clean(text: str) -> str:
    """Return a text whose control characters are shown; lines may end."""
    return "\n".join(map(visible, text.split("\n")))
