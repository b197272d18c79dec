"""What processes must have in common before they share work, and the sentence about the first thing that they don't."""

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any

import numpy as np

from .. import __version__
from ..models import Model


def facts_of(model: Model[Any]) -> dict[str, Any]:
    """What makes a model's results: the backend, versions of the libraries, the configuration, the parameters."""
    data, ops = model.parameters.data, model.ops
    library = sys.modules[type(data).__module__.partition(".")[0]]  # NumPy or PyTorch
    versions = {"minitransformer": __version__, "numpy": np.__version__, library.__name__: library.__version__}
    activations = str(ops.activations(data[:1]).dtype).removeprefix("torch.")
    device = getattr(getattr(data, "device", None), "type", "cpu")  # without a GPU's number, which may differ
    return {
        "backend": f"{ops.layernorm.forward.__module__.rpartition('.')[0]} on {device}, {activations}",
        "version": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "configuration": model.config.to_dict(),
        "checksum of the parameters": zlib.crc32(ops.to_numpy(data).tobytes()),
    }


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """A sentence that names the first fact in which two processes differ, from everybody's, by rank; None if none does.

    A fact that is a mapping, such as the settings, is compared field by field.
    """
    first, *others = (dict(_flat(each)) for each in facts)
    for rank, theirs in enumerate(others, 1):
        for path in {**first, **theirs}:
            if theirs.get(path) != first.get(path):
                said = f"{_shown(theirs.get(path))}, not {_shown(first.get(path))}"
                return f"process {rank} has another {path[-1]} than process 0: {said}"
    return None


def _flat(facts: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, fact in facts.items():
        if isinstance(fact, Mapping):
            yield from _flat(fact, (*path, name))
        else:
            yield (*path, name), fact


def _shown(fact: Any) -> str:
    return fact if isinstance(fact, str) else shortened(fact)
