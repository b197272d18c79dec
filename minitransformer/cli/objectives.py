"""`train --objective`: a language model goes on with rewards (REINFORCE, GRPO) or with preferences (DPO)."""

import argparse
import runpy
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..config import Config, help_of
from ..data.sentence_pairs import read_lines
from ..data.token_dataset import file_sha256
from ..decoding import Generator
from ..models import GPT
from ..training import TrainingSettings
from ..training.checkpoint import Checkpoint, CheckpointError, description_of, load_checkpoint, save_checkpoint
from ..training.preferences import Pair, Preferences, PreferenceSettings
from ..training.rewards import Reward, RewardSettings, Rollouts
from .backend import Backend
from .common import Parser, add_field_options, add_option, given, path_name
from .evaluate import is_sentence
from .recipes import Material

REFERENCE = "start.safetensors"
"""The model at the start, in the training's folder: the policy is kept near it."""

KINDS = ("reinforce", "grpo", "dpo")

REWARD_OPTIONS = {name: text for name, text in help_of(RewardSettings).items() if text}
PREFERENCE_OPTIONS = help_of(PreferenceSettings)
OPTIONS = ("reward", "prompts", "pairs", *REWARD_OPTIONS, *PREFERENCE_OPTIONS)

SETTINGS = {"tokens_per_batch": 4096, "peak_lr": 1e-4, "valid_interval": 20}
"""The settings that differ from those of other trainings that go on from a model."""


@dataclass(frozen=True)
class Objective(Config):
    """The objective of a training: a reward of texts that it draws after prompts, or preferences, if there are `pairs`.

    It goes into the checkpoints, and a training goes on with it.
    """

    reward: str | None = None
    prompts: str | None = None
    pairs: str | None = None
    rewards: RewardSettings = field(default_factory=RewardSettings)
    preferences: PreferenceSettings = field(default_factory=PreferenceSettings)

    @property
    def name(self) -> str:
        """A short name for folders."""
        return "dpo" if self.pairs else f"{self.rewards.kind}-{Path((self.reward or '').partition(':')[0]).stem}"

    @property
    def files(self) -> list[str | None]:
        """The files that it reads."""
        return [self.prompts, self.pairs, None if self.reward == "grammar" else (self.reward or "").rpartition(":")[0]]

    @property
    def needs_reference(self) -> bool:
        """Return True if the model at the start has a part in it."""
        return self.pairs is not None or self.rewards.kl > 0


def add_objective_options(parser: Parser) -> None:
    """Declare the options of a training on rewards or preferences."""
    group = parser.add_argument_group("rewards and preferences, with --from a language model")
    help_text = "reinforce and grpo draw texts and are told their reward; dpo learns from pairs of texts"
    group.add_argument("--objective", choices=KINDS, help=help_text)
    help_text = "what judges a text: grammar (1 if the grammar forms it, else 0), or a function that gets a list of "
    add_option(group, "--reward", "NAME", str, help_text + "texts and returns as many numbers, FILE.py:FUNCTION")
    add_option(group, "--prompts", "FILE", path_name, "the texts begin with these, one a line (default: with nothing)")
    help_text = "for dpo, lines of a better text, a tab and a worse one; a prompt and a tab may stand before both"
    add_option(group, "--pairs", "FILE", path_name, help_text)
    add_field_options(group, RewardSettings, REWARD_OPTIONS, ())
    add_field_options(group, PreferenceSettings, PREFERENCE_OPTIONS, ())


def chosen_objective(args: argparse.Namespace) -> Objective | None:
    """Return the objective that options name, or None. Raises ValueError for options that do not go together."""
    of_rewards, of_preferences = given(args, REWARD_OPTIONS), given(args, PREFERENCE_OPTIONS)
    if args.objective is None:
        for name in given(args, OPTIONS):
            raise ValueError(f"--{name.replace('_', '-')} goes with --objective")
        return None
    if args.start is None:
        raise ValueError("--objective goes with --from MODEL, a language model that can write already")
    for name in ("table", "text", "data", "dataset", "source", "target", "sentences"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} does not go with --objective, which has no such text")
    is_dpo = args.objective == "dpo"
    for name in (*of_rewards, "reward", "prompts") if is_dpo else (*of_preferences, "pairs"):
        if getattr(args, name, None) is not None:
            raise ValueError(f"--{name.replace('_', '-')} does not go with --objective {args.objective}")
    if is_dpo and args.pairs is None:
        raise ValueError("--objective dpo needs --pairs FILE")
    if not is_dpo and args.reward is None:
        raise ValueError(f"--objective {args.objective} needs --reward, grammar or FILE.py:FUNCTION")
    if is_dpo:
        return Objective(pairs=args.pairs, preferences=PreferenceSettings(**of_preferences))
    return Objective(args.reward, args.prompts, rewards=RewardSettings(kind=args.objective, **of_rewards))


def refuse_objective(args: argparse.Namespace) -> None:
    """Raise ValueError for options of an objective where a training is resumed, which keeps its own."""
    for name in given(args, ("objective", *OPTIONS)):
        raise ValueError(f"--{name.replace('_', '-')} does not go with --resume: a training keeps its objective")


def kept_objective(checkpoint: Checkpoint) -> Objective | None:
    """Return the objective of the training that wrote a checkpoint, if it has one. Raises CheckpointError for none."""
    values = checkpoint.state.get("objective")
    try:
        return None if values is None else Objective.from_dict(values)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's objective is none: {error}") from None


def policy_of(model: Any, name: str) -> GPT:
    """Return a language model without dropout: what draws texts is what is trained. Raises ValueError for another."""
    if not isinstance(model, GPT):
        raise ValueError(f"--objective is for language models, and {name} holds a model of kind {model.config.kind!r}")
    config = replace(model.config, dropout=0.0, attention_dropout=0.0)
    return model.with_config(config)


def save_reference(model: GPT, folder: Path) -> None:
    """Write the model at the start into the training's folder. Raises FileExistsError for another file there."""
    path, start = folder / REFERENCE, model if model.tuning is model.bits is None else model.merged()
    state = {"is_reference": True}
    if path.exists() and description_of(path).get("state") != state:
        raise FileExistsError(f"{path} is not the start of such a training: move it elsewhere or delete it")
    save_checkpoint(path, Checkpoint(start.config.to_dict(), start.parameters.state_dict(), state=state))


def open_reference(objective: Objective, folder: Path, backend: Backend) -> GPT | None:
    """Return the model at the start from the training's folder, if the objective needs it."""
    if not objective.needs_reference:
        return None
    model = load_checkpoint(folder / REFERENCE).model(backend.ops, backend.dtype)
    return policy_of(model, str(folder / REFERENCE))


def objective_material(
    objective: Objective, model: GPT, tokenizer: Any, reference: GPT | None, settings: TrainingSettings
) -> Material:
    """Return what a model is trained on: texts that it draws, or pairs, of which every twentieth validates.

    Raises ValueError for a reward, prompts or pairs that can't be used.
    """
    writer = Generator(model, tokenizer)
    kept: dict[str, Any] = {"objective": objective.to_dict()}
    if reference is not None:
        kept["reference"] = zlib.crc32(reference.ops.to_numpy(reference.parameters.data).tobytes())
    if objective.pairs is None:
        prompts = [""] if objective.prompts is None else read_prompts(objective.prompts, writer)
        reward, kept["reward"] = reward_named(objective.reward or "")
        rollouts = Rollouts(writer, reward, objective.rewards, prompts, reference, kept)
        name = "prompt" if len(prompts) == 1 else "prompts"
        return Material(rollouts, None, lambda model, figures: rollouts.figures(settings.tokens_per_batch), name)
    pairs = read_pairs(objective.pairs, writer)
    train, valid = ([pair for i, pair in enumerate(pairs, 1) if (i % 20 == 0) == held] for held in (False, True))
    if not valid:
        number = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
        raise ValueError(f"{objective.pairs} has {number}, expected 20 or more: every 20th validates")
    assert reference is not None
    learned, held = (Preferences(model, reference, each, objective.preferences, kept) for each in (train, valid))
    return Material(learned, None, lambda model, figures: held.figures(settings.tokens_per_batch), "training pairs")


def reward_named(name: str) -> tuple[Reward, str]:
    """Return the reward "grammar", or the function of `FILE.py:FUNCTION`, with a checksum of its file.

    The file is run: it is the user's own program. Raises ValueError if it fails or lacks the function.
    """
    if name == "grammar":
        return grammatical, ""
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not function:
        raise ValueError(f"--reward is {name!r}, expected grammar or FILE.py:FUNCTION")
    checksum = file_sha256(Path(file))
    try:
        found = runpy.run_path(file).get(function)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file} fails: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"{file} has no function {function!r}")
    reward: Any = found

    def guarded(texts: Sequence[str]) -> Sequence[float]:
        try:
            return reward(texts)
        except (Exception, SystemExit) as error:
            raise ValueError(f"{file}: {function} fails: {type(error).__name__}: {error}") from error

    return guarded, checksum


@contextmanager
def in_line(path: str, number: int) -> Iterator[None]:
    """A block whose ValueError begins with the file and the line that it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None


def grammatical(texts: Sequence[str]) -> list[float]:
    """Return 1 for each text that the grammar forms, else 0."""
    return [float(is_sentence(text.strip())) for text in texts]


def read_prompts(path: str, writer: Generator) -> list[str]:
    """Return a file's lines that are not blank. Raises ValueError for none, and for one that is no prompt."""
    prompts = list[str]()
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            with in_line(path, number):
                _ = writer.encode(line)
            prompts.append(line)
    if not prompts:
        raise ValueError(f"--prompts {path} holds no prompt")
    return prompts


def read_pairs(path: str, writer: Generator) -> list[Pair]:
    """Return the pairs of a file as ids. Raises ValueError, naming the line, for one that is no pair."""
    pairs, end = list[Pair](), writer.model.config.eos_id
    if end is None:
        raise ValueError("the model has no token that ends a text")
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        with in_line(path, number):
            parts = line.split("\t")
            if len(parts) not in (2, 3) or not all(part.strip() for part in parts):
                raise ValueError("expected a better text, a tab and a worse one, or a prompt and a tab before them")
            *prompt, better, worse = parts
            if better == worse:
                raise ValueError("the two texts are equal")
            before = "".join(prompt)
            first, *both = (writer.encode(each) for each in (before, before + better, before + worse))
            shared = sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, zip(first, *both, strict=False)))
            one, other = ([*text[shared:], end] for text in both)
            pairs.append((first[:shared] or writer.encode(""), one, other))
    return pairs
