"""Tables for loading and saving: our parameters beside their tensors, our fields beside their options.

"Ours" are this library's names, "theirs" those of the library that wrote the folder.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..models import ModelConfig
from .files import PretrainedError
from .keys import Keys

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One of our parameters and their tensors, which lie side by side in it.

    `transposed`: theirs are (out, in), as torch.nn.Linear stores a weight, and ours (in, out). A convolution's kernel
    `(out, channels, size, size)` counts as such a weight, with its last three axes as one.
    """

    ours: str
    theirs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    transposed: bool = False

    @property
    def is_as_theirs(self) -> bool:
        """True if the parameter is one tensor of theirs with its entries in the same order."""
        return len(self.theirs) == 1 and not (self.transposed and len(self.shapes[0]) > 1)

    @property
    def widths(self) -> list[int]:
        """The outputs of each tensor, which are columns of the parameter."""
        return [shape[0] if self.transposed else shape[-1] for shape in self.shapes]

    def to_ours(self, tensor: np.ndarray, shape: Shape) -> np.ndarray:
        """Return the columns of our parameter, an array of this shape, that one of their tensors holds."""
        return (tensor.reshape(len(tensor), -1).T if self.transposed else tensor).reshape(shape)

    def to_theirs(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """Return their tensors by name from our parameter, or from its gradient."""
        if len(self.theirs) == 1:
            parts = [array]
        else:
            parts = np.split(array, np.cumsum(self.widths)[:-1], axis=-1)
        if self.transposed:
            parts = [part.T for part in parts]
        return {name: part.reshape(shape) for name, part, shape in zip(self.theirs, parts, self.shapes, strict=True)}


@dataclass(frozen=True)
class Architecture:
    """The form of one kind of model in a folder.

    name         the `model_type` of their `config.json`
    kinds        our kinds of model that it can hold
    from_config  makes our configuration from their `config.json` and the shapes of the tensors by name
    to_config    makes theirs from ours; raises PretrainedError, naming the option, for one that theirs can't express
    table        the rows of a configuration
    keys         the keys of their `config.json`
    heads        their classes whose folders are read
    rename       pairs of a regular expression and its replacement that turn every name ever used into the table's
    copies       names of tensors, as regular expressions, each with the tensor that they copy in a tied model
    top          the prefix of names in a model with a head, which names in a bare model lack
    constant     an array that is computed, and the names under which files hold it, as a regular expression
    tied         True if a model without `tie_word_embeddings` is tied
    unties       True if an output layer that is no copy has its own table, even if `tie_word_embeddings` is true
    ignored      a regular expression of names that are no parameters of ours: buffers, and heads that are left out
    holds        returns True for a configuration of these kinds that it can hold
    """

    name: str
    kinds: tuple[str, ...]
    from_config: Callable[[Mapping[str, Any], Mapping[str, Shape]], ModelConfig]
    to_config: Callable[[Any], dict[str, Any]]
    table: Callable[[Any], list[Row]]
    keys: Keys
    heads: tuple[str, ...]
    rename: tuple[tuple[str, str], ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    top: str = ""
    constant: tuple[str, Callable[[Any], np.ndarray]] = (r"(?!)", np.asarray)
    tied: bool = True
    unties: bool = False
    ignored: str = r"(?!)"
    holds: Callable[[Any], bool] = lambda config: True

    def canonical(self, name: str) -> str:
        """Return the table's name of a tensor, without the prefixes that torch.compile and DataParallel add."""
        name = name.replace("_orig_mod.", "").removeprefix("module.")
        for pattern, replacement in self.rename:
            name = re.sub(pattern, replacement, name)
        return name


def linear(ours: str, theirs: str | list[str], width_in: int, *widths: int, bias: bool = True) -> list[Row]:
    """Return the rows of a linear map, or of several side by side, stored as torch.nn.Linear does."""
    names = [theirs] if isinstance(theirs, str) else theirs
    weights, biases = (tuple(f"{name}.{kind}" for name in names) for kind in ("weight", "bias"))
    rows = [Row(f"{ours}.weight", weights, tuple((width, width_in) for width in widths), transposed=True)]
    return rows + [Row(f"{ours}.bias", biases, tuple((width,) for width in widths))] * bias


def norm(ours: str, theirs: str, width: int, bias: bool = True) -> list[Row]:
    """Return the rows of a normalisation."""
    rows = [Row(f"{ours}.gamma", (f"{theirs}.weight",), ((width,),))]
    return rows + [Row(f"{ours}.beta", (f"{theirs}.bias",), ((width,),))] * bias


def array(ours: str, theirs: str, *shape: int) -> Row:
    """Return the row of a table or of another single array."""
    return Row(ours, (theirs,), (shape,))


# --- Options --------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Our names of activations by theirs."""

ACTIVATION_NAMES = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}


OUTPUT = "lm_head.weight"
"""The name of the output layer's table, if it is not the token embedding's."""

NEEDED: Any = object()
"""The default of an option that no file may lack."""

Options = Mapping[str, tuple[str, Any]]
"""Fields with the same meaning in both: from our name to their name, and the value if a file has none."""


def read_options(values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return our fields from their configuration. Raises PretrainedError for a missing one or an unknown activation."""
    found = {}
    for ours, (theirs, default) in options.items():
        if ours == "activation":
            found[ours] = activation(values, theirs, default)
        else:
            found[ours] = required(values, theirs) if default is NEEDED else values.get(theirs, default)
    return found


def option_names(options: Options) -> list[str]:
    """Return their names of the fields."""
    return [theirs for theirs, _ in options.values()]


def write_options(config: ModelConfig, options: Options) -> dict[str, Any]:
    """Return their options from our fields."""
    found = {theirs: getattr(config, ours) for ours, (theirs, _) in options.items()}
    if "activation" in options:
        found[options["activation"][0]] = ACTIVATION_NAMES[found[options["activation"][0]]]
    return found


def activation(values: Mapping[str, Any], name: str, default: str) -> Any:
    """Return our name of the activation that an option gives. Raises PretrainedError for an unknown one."""
    theirs = values.get(name, default)
    if not isinstance(theirs, str) or theirs not in ACTIVATIONS:
        raise PretrainedError(f"{name} {theirs!r} is not supported, only {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[theirs]


def require_options(values: Mapping[str, Any], **supported: Any) -> None:
    """Raise PretrainedError for the first option that has another value than the supported one."""
    for name, expected in supported.items():
        if values.get(name, expected) != expected:
            raise PretrainedError(f"{name} {values[name]!r} is not supported, only {expected!r}")


def require_classes(values: Mapping[str, Any], count: int) -> None:
    """Raise PretrainedError if the options give another number of classes than the classifier's tensor."""
    names = values.get("id2label")
    for said in (values.get("num_labels"), len(names) if isinstance(names, dict) else names):
        if said is not None and said != count:
            raise PretrainedError(f"its options name {said!r} classes, but its classifier has {count}")


def required(values: Mapping[str, Any], name: str) -> Any:
    """Return an option that has no default. Raises PretrainedError if it is missing."""
    if values.get(name) is None:
        raise PretrainedError(f"it has no {name}")
    return values[name]


def token(values: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    """Return the id of a special token, the first of several; `None` for one outside the vocabulary."""
    return next(iter(tokens(values, name, default)), None)


def tokens(values: Mapping[str, Any], name: str, default: int | None = None) -> list[int]:
    """Return the ids of special tokens that an option gives, one or a list, without those outside the vocabulary."""
    given, size = values.get(name, default), values.get("vocab_size")
    given = given if isinstance(given, list) else [given]
    return [value for value in given if type(value) is int and type(size) is int and 0 <= value < size]


def ends(values: Mapping[str, Any], default: int | None = None, needed: bool = False) -> dict[str, Any]:
    """Return our fields for the tokens that end a text: the first of theirs, and the others.

    Raises PretrainedError if there is none and the model needs one.
    """
    first, *others = tokens(values, "eos_token_id", default) or [None]
    if first is None and needed:
        raise PretrainedError(f"eos_token_id {values['eos_token_id']!r} is no token of its vocabulary")
    return {"eos_id": first, "other_eos_ids": tuple(others)}


def written_ends(config: Any) -> int | list[int] | None:
    """Return their `eos_token_id` from our fields: one id or a list."""
    return [config.eos_id, *config.other_eos_ids] if config.other_eos_ids else config.eos_id


def require_ours(config: ModelConfig, target: str, **expected: Any) -> None:
    """Raise PretrainedError for the first field of our configuration that their files can't express."""
    for name, value in expected.items():
        if getattr(config, name) != value:
            raise PretrainedError(f"{name} {getattr(config, name)!r} can't be written as {target}, only {value!r}")


def require_network(config: Any, target: str) -> None:
    """Raise PretrainedError for blocks of attention alone."""
    if config.d_ff == 0:
        raise PretrainedError(f"d_ff 0 can't be written as {target}: its blocks have a feed-forward network")


def layers(name: str, count: int) -> list[tuple[str, str]]:
    """Return our and their prefixes of each layer: `layers.0.`, …, and `name` with the number in it."""
    return [(f"layers.{i}.", name.format(i)) for i in range(count)]
