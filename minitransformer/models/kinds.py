"""The kinds of model: a new one is a file of its own and a line here.

The rest of the package refers to a kind by its name: `cli/recipes.py` holds the recipe by which `train` trains it, and
each of `pretrained.ARCHITECTURES` says which kinds another library's files hold.
"""

from collections.abc import Mapping
from typing import Any

from ..ops import Ops, numpy_ops
from .baselines import ConvolutionalConfig, RecurrentConfig
from .bert import BERTConfig
from .captioner import CaptionerConfig
from .clip import CLIPConfig
from .config import DEFAULT_KIND, ModelConfig, TransformerConfig
from .gpt import GPTConfig
from .marian import MarianConfig
from .t5 import T5Config
from .tuning import Tuning
from .vit import ViTConfig

CONFIGS: tuple[type[ModelConfig], ...] = (
    TransformerConfig,
    GPTConfig,
    BERTConfig,
    T5Config,
    MarianConfig,
    ViTConfig,
    CaptionerConfig,
    CLIPConfig,
    RecurrentConfig,
    ConvolutionalConfig,
)
KINDS = {config.kind: config for config in CONFIGS}
"""The configuration of each kind, by the name that a checkpoint gives it; `config.model` is its model."""


def config_from_dict(values: Mapping[str, Any]) -> ModelConfig:
    """Return the configuration that `to_dict` wrote, of any kind of model; values without a kind are a Transformer's.

    Raises `ValueError` for an unknown kind, and what the `from_dict` of the kind raises.
    """
    kind = values.get("kind", DEFAULT_KIND)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the model is of kind {kind!r}, which this program does not know: it has {', '.join(KINDS)}")
    return KINDS[kind].from_dict(values)


def build_model(
    config: ModelConfig,
    ops: Ops = numpy_ops,
    dtype: str = "float32",
    seed: int | None = 0,
    tuning: Tuning | None = None,
    bits: int | None = None,
) -> Any:
    """Return a new model of the configuration's kind; its weights are drawn from `seed`, or zeros where it is None."""
    model = config.model.blank(config, ops, dtype, tuning, bits)
    if seed is not None:
        model.parameters.initialize(seed)
    return model
