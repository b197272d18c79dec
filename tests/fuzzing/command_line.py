"""Hostile command lines, drawn from argparse's own parser: a new option is tried without a word here.

A case is a command that works with something in it that should not: every argument of every command is given hostile
values in turn, alone or with another. What it must not do: end in a traceback, without end, or in more than one line;
write a control character to a terminal; touch what it was not told to; or succeed with a value that `FINE` does not
call fine. A new argument needs a line in `FINE`: which of its values may be accepted.
"""

import argparse
import os
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from forked import Attack, Outcome
from support.cli_runs import SMALL
from world import ESCAPES, FAMILY, MODELS, TEXTS

from minitransformer.cli import build_parser
from paper.command import STUDY
from study import command as study

NUMBERS = [
    *("0", "1", "2", "3", "4", "5", "8", "10", "16", "17", "48", "100", "300", "1000", "65536", "2147483648"),
    *("9223372036854775807", "9223372036854775808", "99999999999999999999", "9" * 400, "9" * 5000, "-" + "9" * 400),
    *("-1", "-0", "+3", "007", "0.1", "0.25", "0.9", "1.5", "-0.1", ".5", "5.", "1e3", "1e-3", "1e30", "1e300"),
    *("1e308", "1e400", "-1e400", "5e-324", "1e-400", "inf", "-inf", "Infinity", "nan", "NaN", "1_000", "1,000"),
    *("0x10", "١٢", "²", "½", "1e", "e1", "--1", "1 2", " 5 ", "5\n", "None", "True"),
]
WORDS = [
    *("", " ", "-", "--", "--help", "=", "=3", "a" * 10_000, "dog " * 5000, "two\nlines", "\t", "\x7f", "\x9b31m"),
    *(ESCAPES, "\x1b]0;title\x07", "\u202etxt.exe", "\udcff\udcfe", "💥", "e\u0301" * 50, "%s%n%d", "{program}"),
    *("{0.__class__}", "$(touch x)", "; ls", "*", "~", "en", "de", "xx", "tree", "../en", "a/b", "cpu", "cuda"),
    *("cuda:99", "mps", "meta", "abacus", "table1", "all", "A dog."),
]
PLACES = [
    *(*MODELS, *FAMILY, *TEXTS, "text", "run", "folder", "run/data", "run/log.jsonl", "./model", "text/../model"),
    *("truncated", "flipped", "latin", "utf16", "zeros", "long", "empty", "loop", "loop/x", "dangling"),
    *("nowhere", "nowhere/deep", "fresh", "fresh/deep", "model/inside", ".", "..", "/", "/nowhere/at/all"),
    *("/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "n" * 300, "d/" * 2500 + "x"),
]
STRAY = ["--", "", "--frobnicate", "-x", "A dog.", "--out"]
"""What a word of a command line may become that somebody mistyped."""

PATIENCE = 48
"""Layers of a training, or samples of a text: with more of them, if they fit into memory, a test takes too long."""

BRIEF = ["--steps", "2", "--tokens-per-batch", "64", "--threads", "1", "--checkpoint-interval", "2"]

TINY_VIT = ["--d-model", "16", "--num-heads", "2", "--d-ff", "16", "--num-layers", "1", "--steps", "2"]

BASES: dict[str, list[tuple[list[str], list[str]]]] = {
    "demo": [([], ["--out", "demo"])],
    "train": [
        ([], ["--data", "text", "--out", "new", *SMALL]),
        ([], ["--resume", "run", "--steps", "6"]),
        ([], ["--kind", "gpt", "--text", "text/train.en", "--out", "new", *SMALL]),
        ([], ["--kind", "bert", "--data", "text", "--out", "new", *SMALL]),
        ([], ["--kind", "t5", "--text", "text/train.en", "--out", "new", *SMALL]),
        ([], ["--kind", "vit", "--out", "new", "--patch-size", "4", *TINY_VIT]),
        ([], ["--kind", "captioner", "--out", "new", "--tokens-per-batch", "64", *TINY_VIT]),
        ([], ["--kind", "clip", "--out", "new", "--tokens-per-batch", "256", *TINY_VIT]),
        ([], ["--dataset", "grammar", "--out", "new", *SMALL, "--sentences", "60", "--max-length", "200"]),
        ([], ["--from", "gpt", "--objective", "grpo", "--reward", "grammar", "--out", "new", *BRIEF]),
        ([], ["--from", "gpt", "--objective", "dpo", "--pairs", "pairs", "--out", "new", *BRIEF]),
    ],
    "translate": [
        (["model", "A dog sleeps."], []),
        (["model"], ["--file", "few.en"]),
        (["model", "A dog."], ["--attention", "maps.png"]),
        (["model"], []),
    ],
    "generate": [
        (["gpt", "A dog"], ["--max-tokens", "5"]),
        (["gpt"], ["--file", "few.en", "--max-tokens", "3"]),
        (["gpt", "A dog"], ["--lens", "maps.png", "--max-tokens", "3"]),
        (["gpt", "A dog"], ["--draft", "prompt", "--draft-tokens", "2", "--max-tokens", "5"]),
        (["gpt", "A dog"], ["--cache-in-bytes", "--bits", "8", "--max-tokens", "5"]),
    ],
    "fill": [(["bert", "A [MASK] sleeps."], [])],
    "classify": [(["vit"], ["--digits", "1", "2"])],
    "caption": [(["captioner"], ["--scene", "1", "2"])],
    "embed": [(["bert", "A dog sleeps."], []), (["bert"], ["--file", "few.en", "--out", "vectors.npy"])],
    "similar": [(["bert", "A dog.", "A cat."], []), (["bert", "A dog."], ["--file", "few.en"])],
    "evaluate": [
        (["gpt"], ["--text", "few.en"]),
        (["gpt"], ["--samples", "3"]),
        (["model"], ["--input", "few.en", "--reference", "few.de", "--beam", "1"]),
        (["model"], ["--data", "text", "--output", "out.de"]),
    ],
    "explore": [
        (["model"], ["--out", "page.html"]),
        (["model"], ["--out", "page.html", "--examples", "few.en"]),
        (["gpt"], ["--out", "page.html", "--int8"]),
    ],
    "inside": [
        (["model", "A dog sleeps."], ["--out", "page.html"]),
        (["gpt", "A dog"], ["--out", "page.html", "--max-tokens", "3"]),
        (["bert", "A [MASK] sleeps."], ["--out", "page.html"]),
    ],
    "average": [(["old", "model"], ["--output", "average"]), (["run"], ["--last", "2", "--output", "average"])],
    "info": [(["model"], []), ([], ["--preset", "tiny"])],
    "check": [([], [])],
    "paper": [
        (["table1"], ["--out", "report", "--work", "work", "--workers", "1"]),
        ([], ["--report", "--out", "results"]),
    ],
}
"""Positional arguments and options that work, by command."""

STDIN = [b"", b"A dog.\nA cat.\n", b"\xe4\n", "A dog.\n".encode("utf-16-le"), b"dog " * 1000, b"\x1b[31mA.\n", None]

Fine = Callable[[str], bool]


def whole(least: int, most: int = 2**63 - 1) -> Fine:
    """Whole numbers in decimal digits."""
    return lambda text: bool(re.fullmatch("[+-]?[0-9]+", text)) and least <= _int(text) <= most


def real(least: float, most: float, above: bool = False, below: bool = False) -> Fine:
    """Finite numbers in decimal digits; `above` and `below` leave out the bounds."""

    def fine(text: str) -> bool:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return False
        value = float(text)
        return (value > least if above else value >= least) and (value < most if below else value <= most)

    return fine


def named(*names: str) -> Fine:
    """Files or folders of the world, however they are called."""
    return lambda text: text != "" and any(_same(text, name) for name in names)


def to_write(text: str) -> bool:
    """A file that may be written, in a folder that there is or that can be made."""
    return text != "" and not os.path.isdir(text) and text[-1] != "/" and _can_be_made(os.path.dirname(text))


def to_fill(text: str) -> bool:
    """A folder that there is or that can be made, without a training in it."""
    return text != "" and _can_be_made(text) and not named("run")(text)


def _can_be_made(folder: str) -> bool:
    """Return True if every part of a path that exists is a folder: the command may have made the rest."""
    parts = os.path.abspath(folder).split(os.sep)
    above = [os.sep.join(parts[:count]) for count in range(1, len(parts) + 1)]
    return not any(os.path.lexists(path) and not os.path.isdir(path) for path in above if path)


def sentence(text: str) -> bool:
    """Return True if it can be translated by a model of 48 tokens."""
    return len(text) < 200 and not re.search("[\ud800-\udfff]", text)


RULES: dict[str, Fine] = {
    "warmup_steps valid_interval checkpoint_interval keep max_length max_distance length batch_size workers": whole(1),
    "demo.steps": whole(1),
    "steps seed window": whole(0),
    "vocab_size d_model num_heads num_kv_heads d_k d_v buckets patch_size embedding": whole(1, 100_000),
    "d_ff": whole(0, 100_000),
    "num_layers num_decoder_layers": whole(1, PATIENCE),
    "info.vocab_size": whole(3),
    "tokens_per_batch": whole(2),
    "accumulate shards": whole(1, 4096),
    "threads": whole(1, 1024),
    "sentences": whole(1, 100_000_000),
    "beam": whole(1, 1000),
    "n_best": whole(1, 4),
    "last": whole(1, 2),
    "minutes clip_norm peak_lr": real(0, 1e309, above=True),
    "paper.minutes": real(0, 525_600, above=True),
    "timeout": real(0.1, 1e6),
    "label_smoothing cooldown beta1 beta2 dropout attention_dropout": real(0, 1, below=True),
    "eps layernorm_eps norm_eps": real(1.2e-38, 1),
    "softcap": real(0, 1e309, above=True),
    "embedding_scale": real(0, 1e309, above=True),
    "init_gain init_std": real(1.2e-38, 3.4e38),
    "length_penalty": real(0, 10),
    "translate.sentences": sentence,
    "out work": to_fill,
    "save": lambda text: text != "" and _can_be_made(text),
    "output attention lens explore.out inside.out embed.out": to_write,
    "resume": named("run"),
    "data": named("text"),
    "train.text evaluate.text": named(*TEXTS, "run/log.jsonl"),
    "fill.text": lambda text: "[MASK]" in text,
    "generate.model draft": named("gpt"),
    "inside.model": named(*MODELS, *FAMILY),
    "inside.text": lambda text: text.strip() != "" and not re.search("[\ud800-\udfff]", text),
    "inside.max_tokens": whole(0),
    "fill.model embed.model similar.model": named("bert"),
    "classify.model": named("vit"),
    "generate.prompts system embed.texts similar.texts": lambda text: not re.search("[\ud800-\udfff]", text),
    "embed.file similar.file": named(*TEXTS, "empty", "/dev/null", "model", "run/log.jsonl", "long"),  # cut to fit
    "caption.model": named("captioner"),
    "classify.inputs caption.inputs": lambda text: False,
    "scene": whole(0),
    "digits": whole(0, 363),
    "max_tokens draft_tokens samples count": whole(1),
    "evaluate.samples": whole(1, 10_000),
    "stride context": whole(1, 48),
    "start": named(*MODELS, *FAMILY),
    "table": named(*TEXTS, "run/log.jsonl"),
    "freeze lora_targets": bool,
    "reward": "grammar".__eq__,
    "train.prompts": named(*TEXTS, "run/log.jsonl"),
    "pairs": named("pairs"),
    "group": whole(2, 4096),
    "updates": whole(1, 2),
    "clip": real(0, 1, above=True),
    "kl": real(0, 1e309),
    "beta": real(0, 1e309, above=True),
    "bits": ("8", "4").__contains__,
    "lora": whole(1, 48),
    "lora_alpha": real(0, 1e309, above=True),
    "temperature": real(0, 1e309),
    "top_k": whole(1),
    "top_p min_p": real(0, 1, above=True),
    "repetition_penalty": real(0, 1e309, above=True),
    "checkpoint checkpoints": named(*MODELS, *FAMILY),
    "file input reference examples": named(*TEXTS, "empty", "/dev/null", "model", "run/log.jsonl"),
    "source": ("en", "de").__contains__,
    "target": ("en", "de", "tree").__contains__,
    "device": ("cpu",).__contains__,
    "experiments": ("table1",).__contains__,
}
FINE = {name: fine for names, fine in RULES.items() for name in names.split()}
"""By an argument's name, with its command's in front where commands differ: which values may be accepted at most."""


class Hostile(NamedTuple):
    """A value for an argument of a command."""

    command: str
    action: argparse.Action
    value: str

    @property
    def is_fine(self) -> bool:
        """Return True if the command may succeed with it."""
        if self.action.choices is not None:
            return self.value in self.action.choices
        return _fine(self.command, self.action.dest)(self.value)


def attacks(seed: int, count: int, _: Path) -> list[Attack]:
    """The first `count` command lines of a seed: every argument in turn, its values in turn."""
    order = random.Random(seed)
    arguments = [(command, action) for command, parser in _commands().items() for action in _arguments(parser)]
    for command, action in arguments:
        if action.choices is None:
            _fine(command, action.dest)  # raises where it is not listed
    order.shuffle(arguments)
    values = {(command, action.dest): order.sample(pool := _pool(action), len(pool)) for command, action in arguments}
    found = []
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        command, action = arguments[number % len(arguments)]
        pool = values[command, action.dest]
        hostile = [Hostile(command, action, pool[number // len(arguments) % len(pool)])]
        others = [each for name, each in arguments if name == command and each is not action]
        if others and draw.random() < 0.3:
            other = draw.choice(others)
            hostile.append(Hostile(command, other, draw.choice(values[command, other.dest])))
        found.append(_attack(tuple(hostile), draw))
    return found


def _judge(hostile: Sequence[Hostile], unclear: bool, attack: Attack, outcome: Outcome) -> str | None:
    """Return the complaint about what it reached or accepted; `unclear`: nobody can say what the words mean."""
    told = [each.partition("=")[2] if each.startswith("--") else each for each in attack.argv]
    if outcome.denied and not any(each.startswith(("/", "..")) or "/.." in each for each in told):
        return f"it reached outside its folder: {outcome.denied[0]}"
    for name in outcome.changed:
        if sum(os.path.realpath(each) == os.path.realpath(name) for each in told if each) > 1:
            return f"it wrote over {name}, which it reads"
        if not any(os.path.realpath(name).startswith(os.path.realpath(each)) for each in told if each):
            return f"it changed {name}"
    resumes = "run" in told and "--resume" in attack.argv  # then --out may name the same folder
    hostile = [each for each in hostile if not (resumes and each.action.dest == "out" and _same(each.value, "run"))]
    accepted = [] if unclear or outcome.status == 2 else [each for each in hostile if not each.is_fine]
    if accepted:
        return f"it accepted {accepted[0].value!r:.200} for {accepted[0].action.dest}"
    if outcome.status == 0 and attack.stdout != "file" and not {"--help", "--version"} & set(attack.argv):
        return "it succeeded though nobody could read what it said"
    return None


def _fine(command: str, dest: str) -> Fine:
    fine = FINE.get(f"{command}.{dest}") or FINE.get(dest)
    if fine is None:
        raise LookupError(f"which values of {command} {dest} may be accepted? FINE needs a line")
    return fine


def _commands() -> dict[str, argparse.ArgumentParser]:
    subparsers: Any = next(each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return {**subparsers.choices, "paper": study.build_parser(STUDY)}


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options that take a value."""
    return [action for action in parser._actions if action.nargs != 0 and action.dest != "help"]


def _pool(action: argparse.Action) -> list[str]:
    """Values for an argument, most of the sort that it takes."""
    if action.choices is not None:
        return [*map(str, action.choices), *WORDS, *NUMBERS[:5], *PLACES[:5]]
    if action.metavar in ("N", "X"):
        most = {"num_layers": 100_000, "num_decoder_layers": 100_000, "samples": 2**63}  # more is refused
        is_slow = whole(PATIENCE + 1, most.get(action.dest, 0))
        return [value for value in (*NUMBERS, *WORDS[:12]) if not is_slow(value)]
    return [*PLACES, *WORDS, *NUMBERS[:3]]


def _attack(hostile: tuple[Hostile, ...], draw: random.Random) -> Attack:
    """A command line that works, with these values in it."""
    command = hostile[0].command
    positionals, options = (list(each) for each in draw.choice(BASES[command]))
    for each in hostile:
        if each.action.option_strings:
            option = each.action.option_strings[0]
            _remove(option, options)
            options += [f"{option}={each.value}"] if draw.random() < 0.5 else [option, each.value]
        elif each.action.dest in ("checkpoint", "model", "text"):
            place = int(each.action.dest == "text")
            positionals[place : place + 1] = [each.value]
        else:  # the last one, which is a list
            first = int(command in ("translate", "generate", "classify", "caption"))
            positionals[first + draw.randrange(2) :] = [each.value]
    argv = [command, *positionals, *options] if draw.random() < 0.5 else [command, *options, *positionals]
    unclear = any(each.value.startswith("-") and len(each.value) > 1 for each in hostile)  # it looks like an option
    if draw.random() < 0.1:
        unclear, place = True, draw.randrange(len(argv) + 1)
        argv[place : place + draw.randrange(2)] = [draw.choice(STRAY)][: draw.randrange(2)]
    return Attack(
        argv,
        partial(_judge, hostile, unclear),
        stdin=draw.choice(STDIN),
        stdout=draw.choice(["closed", "full", *["file"] * 30]),
        stderr=draw.choice(["closed", *["file"] * 30]),
    )


def _remove(option: str, options: list[str]) -> None:
    if option in options:
        start = options.index(option)
        stop = next((i for i in range(start + 1, len(options)) if options[i].startswith("--")), len(options))
        del options[start:stop]


def _same(text: str, name: str) -> bool:
    return os.path.realpath(text) == os.path.realpath(name)


def _int(text: str) -> int:
    digits = text.lstrip("+-0")[:20] or "0"
    return -int(digits) if text.startswith("-") else int(digits)
