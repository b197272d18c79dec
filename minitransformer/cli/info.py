"""Show what is in a checkpoint or another model, or what a preset comes to.

examples:
  {program} info runs/demo/model.safetensors
  {program} info gpt2 --length 1024
  {program} info --preset base
  {program} info --preset tiny --vocab-size 4000 --length 64

CHECKPOINT is also a folder of a model as `transformers` saves it, a GGUF file, or a name on the Hugging Face hub. Their
weights are not read: a model that is too large for this machine can be looked at too.
"""

import argparse
import math
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..costs import Counted, cache_bytes, flops_per_token, inference_bytes, parameter_groups, training_bytes
from ..models import (
    PRESETS,
    CaptionerConfig,
    CLIPConfig,
    GPTConfig,
    ModelConfig,
    StacksConfig,
    TransformerConfig,
    ViTConfig,
)
from ..outline import outline
from ..system.allocator import memory_limit
from ..training import TrainingSettings
from ..training.checkpoint import Checkpoint, load_checkpoint
from .common import Parser, add_option, as_bytes, given, positive_int, say
from .model_argument import add_checkpoint_argument, check_folder, is_checkpoint

BATCH_TOKENS = 4096
THREADS = 2
BEAM = 4
SIZES = {"float64": 8, "float32": 4, "float16 or bfloat16": 2}
"""Bytes of a number. The NumPy backend computes in the first two."""

HELP = "a model's configuration, parameters, FLOPs and memory"


def add_options(parser: Parser) -> None:
    """Declare the options of `info`."""
    add_checkpoint_argument(parser, nargs="?")
    parser.add_argument("--preset", choices=PRESETS, help="a size instead of a checkpoint")
    help_text = "tokens of the vocabulary, with --preset (default: the preset's own)"
    add_option(parser, "--vocab-size", "N", positive_int, help_text)
    help_text = "tokens in a text, for the costs (default: 32; of a folder's model, as many as it can read)"
    add_option(parser, "--length", "N", positive_int, help_text)


def run(args: argparse.Namespace) -> int:
    """Print the configuration, the parameters and the costs."""
    if (args.checkpoint is None) == (args.preset is None):
        raise ValueError("name a checkpoint or a --preset, one of the two")
    if args.preset is not None:
        say_transformer(getattr(TransformerConfig, args.preset)(**given(args, ["vocab_size"])), args.length or 32)
        return 0
    if args.vocab_size is not None:
        raise ValueError("--vocab-size goes with --preset; a checkpoint has its own")
    if not is_checkpoint(args.checkpoint):
        return say_folder(args.checkpoint, args.length)
    checkpoint = load_checkpoint(args.checkpoint)
    config = checkpoint.model_config()
    say_section(args.checkpoint, checkpoint_rows(Path(args.checkpoint), checkpoint))
    if isinstance(config, TransformerConfig):
        say_transformer(config, args.length or 32)
    else:
        sizes = {name: array.size for name, array in checkpoint.parameters.items()}
        sizes |= {name: math.prod(weight.shape) for name, weight in checkpoint.quantized.items()}
        say_model(config, sizes, args.length or 32, checkpoint.state.get("bits"))
    return 0


def say_folder(name: str, length: int | None) -> int:
    """Print what a folder of another library's, or a GGUF file, holds, and what of it is not used."""
    from ..pretrained import look

    check_folder(name)
    found = look(name)
    config, tokenizer = found.config, found.source.tokenizer(found.architecture.name)
    say_section(name, {"tokenizer": None if tokenizer is None else f"{tokenizer.vocab_size:,} tokens"})
    types = Counter[str](tensor.type for tensor in found.tensors.values())
    rows = {
        f"in the file, {number} tensors of {each}": sum(t.nbytes for t in found.tensors.values() if t.type == each)
        for each, number in types.most_common()
    }
    rows |= {f"in {each}": size * config.num_parameters for each, size in SIZES.items()}
    for bits in (8, 4):
        with suppress(ValueError):  # no matrix that fits
            rows[f"in {bits} bits"] = config.weight_bytes(bits=bits)
    say_section("weights", {each: as_bytes(count) for each, count in rows.items()})
    say_model(config, config.parameter_sizes(), length or getattr(config, "max_length", 32))
    say_section("not used", {where: ", ".join(names) or None for where, names in found.unused().items()})
    return 0


def say_model(config: ModelConfig, sizes: dict[str, int], length: int, bits: int | None = None) -> None:
    """Print a configuration, the parameters, whose sizes are given by name, and the costs of what is made of blocks."""
    say_section("configuration", config.to_dict())
    if isinstance(config, Counted):
        say_section("architecture", outline(config))
    say_parameters(of_all_layers(sizes))
    if isinstance(config, Counted):
        say_costs(config, sum(sizes.values()), length, bits)


def of_all_layers(counts: dict[str, int]) -> dict[str, int]:
    """Return the numbers of parameters by name, those of the same part in all layers together."""
    together = Counter[str]()
    for name, count in counts.items():
        together[re.sub(r"\.\d+\.", ".*.", name)] += count
    return dict(together)


def say_transformer(config: TransformerConfig, length: int) -> None:
    """Print a Transformer's configuration, parameters and costs."""
    say_section("configuration", config.to_dict())
    say_section("architecture", outline(config))
    groups = parameter_groups(config)
    say_parameters(groups)
    say_costs(config, sum(groups.values()), length)


def say_parameters(counts: dict[str, int]) -> None:
    """Print the number of parameters of each part, and of all together."""
    rows = counts | {"all": sum(counts.values())}
    say_section("parameters", {name: f"{count:>13,}" for name, count in rows.items()})


def checkpoint_rows(path: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the rows about the file, and about what it holds besides the model."""
    rows: dict[str, Any] = {
        "size": as_bytes(path.stat().st_size),
        "step": f"{checkpoint.step:,}",
        "tokenizer": "yes" if checkpoint.tokenizer else "no",
        "optimiser state": "yes" if checkpoint.optimizer else "no",
    }
    if "bits" in checkpoint.state:
        rows["matrices"] = f"in {checkpoint.state['bits']} bits"
    if checkpoint.languages:
        rows["languages"] = " → ".join(checkpoint.languages)
    if "averaged_steps" in checkpoint.state:
        rows["average of steps"] = ", ".join(map(str, checkpoint.state["averaged_steps"]))
    if "settings" in checkpoint.state:
        settings = TrainingSettings.from_checkpoint(checkpoint, path).to_dict()
        rows |= {f"trained with {name}": value for name, value in settings.items()}
    return rows


def say_costs(config: Counted, num_parameters: int, length: int, bits: int | None = None) -> None:
    """Print FLOPs and, of models for which it is known, memory."""
    flops = flops_per_token(config, length)
    clip = isinstance(config, CLIPConfig)
    source, target = ("a patch of a picture", "a token of a text") if clip else ("a source token", "a target token")
    rows = {f"forward, {source}": flops.source, f"forward, {target}": flops.target}
    if not flops.source or not flops.target:
        rows = {"forward, a token": flops.source or flops.target}
    rows = {name: f"{count / 1e6:,.2f} MFLOP" for name, count in rows.items()}
    if not clip:  # a picture has more patches than its text has tokens
        rows["training, a token"] = f"{flops.training / 1e6:,.2f} MFLOP"
    if isinstance(config, TransformerConfig):
        training = training_bytes(config, num_parameters, BATCH_TOKENS, length, THREADS)
        rows[f"memory to train ({BATCH_TOKENS} tokens a batch, {THREADS} threads)"] = f"about {as_bytes(training)}"
    if isinstance(config, StacksConfig):
        what = "describe (a picture" if isinstance(config, CaptionerConfig) else "translate (a sentence"
        rows[f"memory to {what}, beam {BEAM})"] = as_bytes(inference_bytes(config, num_parameters, length, BEAM))
    elif isinstance(config, GPTConfig):
        rows["keys and values, a token"] = as_bytes(cache_bytes(config))
        least, limit = inference_bytes(config, num_parameters, length, 1, bits), memory_limit()
        here = f", of {as_bytes(limit)} on this machine" if limit else ""
        rows["memory to write a text, at least"] = f"{as_bytes(least)}{here}"
    where = f"{length} tokens in a text"
    if isinstance(config, ViTConfig):
        where = f"{config.num_tokens} tokens in an image"
    elif isinstance(config, CaptionerConfig | CLIPConfig):
        where = f"{config.num_patches} patches in an image and {where}"
    say_section(f"costs, with {where}", rows)


def say_section(title: str, rows: dict[str, Any]) -> None:
    """Print a titled table."""
    width = max(map(len, rows)) + 2
    say(title)
    for name, value in rows.items():
        say(f"  {name:{width}}{'–' if value is None else value}")
    say()
