"""Adapters as the package PEFT keeps them: `adapter_config.json` and `adapter_model.safetensors`, without the model.

PEFT stores A as `(r, C_in)` and B as `(C_out, r)`, each beside the linear map that it belongs to. Where a folder has
one tensor for several outputs (GPT-2's queries, keys and values), their adapters become one of a higher rank: the A lie
side by side, and each B has zeros in the columns of the others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..layers import AdaptedLinear
from ..models import BERTConfig, EncoderDecoder, Model, is_adapter
from .errors import PretrainedError
from .files import write_json, write_tensors
from .names import Row

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TOP = "base_model.model."
"""The beginning of names in PEFT's files, before those of `transformers`."""

TASKS = {"classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "answer": "QUESTION_ANS"}
"""PEFT's names of what a BERT is for, by a head that must be saved with its adapters."""


def write_adapter(model: Model[Any], folder: Path, rows: list[Row]) -> None:
    """Write the adapters of a loaded model, and what else of it is trained; `rows` are those of its architecture.

    Raises PretrainedError for a model without adapters, or that came from no folder, before anything is written.
    """
    tuning, origin = model.tuning, model.origin
    if tuning is None or tuning.rank is None:
        raise PretrainedError("the model has no adapters")
    if origin is None:
        raise PretrainedError("adapters belong to a published model, and this one came from no folder")
    by_name, tensors, ranks = {row.ours: row for row in rows}, dict[str, np.ndarray](), dict[str, int]()
    adapted = [
        (by_name[f"{name}.weight"], layer) for name, layer in model.named_layers() if isinstance(layer, AdaptedLinear)
    ]
    for row, layer in adapted:
        for module, a, b in _of(layer, row):
            ranks[module] = a.shape[1]
            tensors |= {f"{TOP}{module}.lora_A.weight": a.T, f"{TOP}{module}.lora_B.weight": b.T}
    whole = {name: each for name, each in model.parameters.named.items() if each.trained and not is_adapter(name)}
    modules = {_module(theirs) for name in whole for theirs in by_name[name].theirs}
    for row in rows:
        if {_module(theirs) for theirs in row.theirs} & modules:
            theirs = row.to_theirs(model.ops.to_numpy(model.parameters.named[row.ours].data))
            tensors |= {TOP + name: array for name, array in theirs.items()}
    others = {module: rank for module, rank in ranks.items() if rank != tuning.rank}
    alpha = tuning.alpha or tuning.rank
    (folder / CONFIG).unlink(missing_ok=True)
    write_tensors(folder / WEIGHTS, {name: np.ascontiguousarray(array) for name, array in tensors.items()})
    values: Mapping[str, Any] = {
        "peft_type": "LORA",
        "task_type": _task(model) if modules or not isinstance(model.config, BERTConfig) else None,
        "base_model_name_or_path": origin.name,
        "r": tuning.rank,
        "lora_alpha": alpha,
        "rank_pattern": others,
        "alpha_pattern": {module: alpha / tuning.rank * rank for module, rank in others.items()},
        "target_modules": sorted(ranks),
        "modules_to_save": sorted(modules) or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": not any(row.transposed for row, _ in adapted),
        "inference_mode": True,
    }
    write_json(folder / CONFIG, values)


def _of(layer: AdaptedLinear, row: Row) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the adapters of a linear map, `(module, A, B)` for each of their tensors that has one."""
    numpy, modules = layer.ops.to_numpy, [name.removesuffix(".weight") for name in row.theirs]
    parts = [(numpy(adapter.a.data), numpy(adapter.b.data), columns) for adapter, columns in layer.adapted()]
    if len(modules) == len(layer.widths):
        places = [module for module, adapter in zip(modules, layer.adapters, strict=True) if adapter is not None]
        return [(module, a, b) for module, (a, b, _) in zip(places, parts, strict=True)]
    spread = []
    for _, b, columns in parts:
        wide = np.zeros((len(b), sum(layer.widths)), b.dtype)
        wide[:, columns] = b
        spread.append(wide)
    return [(modules[0], np.concatenate([a for a, _, _ in parts], axis=1), np.concatenate(spread))]


def _module(name: str) -> str:
    """Return the module of a tensor; PEFT takes a head as a whole."""
    return name.split(".")[0] if name.startswith("classifier.") else name.rpartition(".")[0]


def _task(model: Model[Any]) -> str | None:
    if isinstance(model.config, BERTConfig):
        return TASKS.get(model.config.head)
    return "SEQ_2_SEQ_LM" if isinstance(model, EncoderDecoder) else "CAUSAL_LM"
