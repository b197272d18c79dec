"""The part of a model that is trained: all of it, what is not frozen, or adapters beside its linear maps."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ..config import Config, positive, require, whole
from ..layers import AdaptedLinear, Layer, Linear, LoRA, Parameter, QuantizedParameter


def _patterns(*default: str) -> Any:
    """Declare a field for patterns of names."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
            raise TypeError(f"{name} must be patterns of names, got {value!r}")

    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Tuning(Config):
    """The parameters that a training changes, by patterns of their names as a shell writes them (`decoder.layers.0.*`).

    Parameters that match `frozen` stay as they are, unless they match `trained` too; so do those in few bits. With a
    `rank` r the outputs of linear maps that match `targets` get an adapter `(α/r) · x A B`, which is always trained; α,
    `alpha`, is r unless it is given. An output has the name of its map or, if it is one of several, the map's name with
    its own behind it: `decoder.layers.0.self_attention.query_key_value.query`,
    `….feed_forward.contract`.
    """

    frozen: tuple[str, ...] = _patterns()
    trained: tuple[str, ...] = _patterns()
    rank: int | None = whole(None)
    alpha: float | None = positive(None)
    targets: tuple[str, ...] = _patterns("*.query", "*.value")

    def apply(self, model: Layer) -> None:
        """Mark the parameters of a model, which has no arrays yet, and put adapters beside its linear maps.

        Raises `ValueError` for a pattern that no name matches, a rank that is no lower than a map's, and a model of
        which nothing would be trained.
        """
        names: dict[Parameter, str] = {}  # a shared parameter has its first name
        for name, parameter in model.named_parameters():
            names.setdefault(parameter, name)
        _check(names.values(), *self.frozen, *self.trained)
        for parameter, name in names.items():
            wanted = not _matches(name, self.frozen) or _matches(name, self.trained)
            parameter.trained = wanted and not isinstance(parameter, QuantizedParameter)
        if self.rank is not None:
            self._adapt(model, self.rank)
        require(any(each.trained for _, each in model.named_parameters()), "all parameters are frozen")

    def _adapt(self, model: Layer, rank: int) -> None:
        """Put an adapted map in the place of each with an output that matches `targets`."""
        outputs = {
            (linear, i): ".".join([name, *linear.parts[i : i + 1]] if len(linear.widths) > 1 else [name])
            for name, linear in model.named_layers()
            if isinstance(linear, Linear)
            for i in range(len(linear.widths))
        }
        _check(outputs.values(), *self.targets)
        scale = (self.alpha or rank) / rank
        for _, owner in [("", model), *model.named_layers()]:
            for attribute, linear in owner.members():
                if not isinstance(linear, Linear) or isinstance(linear, AdaptedLinear):
                    continue
                adapters, width_in = list[LoRA | None](), linear.weight.shape[0]
                for i, width in enumerate(linear.widths):
                    wanted = _matches(outputs[linear, i], self.targets)
                    require(
                        not wanted or rank < min(width_in, width),
                        f"the rank is {rank}, but {outputs[linear, i]} is a map of {width_in} to {width} channels",
                    )
                    adapters.append(LoRA(linear.ops, width_in, width, rank, scale) if wanted else None)
                if any(adapters):
                    setattr(owner, attribute, AdaptedLinear(linear, adapters))


def is_adapter(name: str) -> bool:
    """Return True for the name of an adapter's parameter."""
    return ".adapters." in name


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check(names: Iterable[str], *patterns: str) -> None:
    """Raise ValueError for a pattern that matches none of the names."""
    names = list(names)
    for pattern in patterns:
        require(any(fnmatchcase(name, pattern) for name in names), f"no name matches {pattern!r}, such as {names[-1]}")
