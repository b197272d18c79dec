"""Small recurrent and convolutional models, every option in one of them at least."""

from typing import Any

import numpy as np
import pytest

from minitransformer.models import (
    ConvolutionalConfig,
    ConvolutionalTranslator,
    ModelConfig,
    RecurrentConfig,
    RecurrentTranslator,
    build_model,
)

SIZES = {"vocab_size": 11, "d_model": 6, "max_length": 16, "dropout": 0.3}
CONFIGS: dict[str, RecurrentConfig | ConvolutionalConfig] = {
    "tanh": RecurrentConfig(**SIZES, num_layers=1, cell="tanh", attention=False),
    "tanh, attention": RecurrentConfig(**SIZES, num_layers=2, cell="tanh"),
    "lstm": RecurrentConfig(**SIZES, num_layers=2, attention=False),
    "lstm, attention": RecurrentConfig(**SIZES, num_layers=1),
    "convolutional": ConvolutionalConfig(**SIZES, num_layers=2),
    "convolutional, wide": ConvolutionalConfig(**SIZES, num_layers=1, kernel_width=5),
    "convolutional, narrow": ConvolutionalConfig(**SIZES, num_layers=1, kernel_width=1),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))


def baseline(config: ModelConfig, dtype: str = "float64", moved: float = 0.3, **options: Any) -> Any:
    """A model with every parameter moved away from where it starts, so that no bias is 0."""
    model = build_model(config, dtype=dtype, **options)
    assert isinstance(model, RecurrentTranslator | ConvolutionalTranslator)
    rng = np.random.default_rng(0)
    for parameter in model.parameters.named.values():
        parameter.data += moved * rng.standard_normal(parameter.shape)
    return model
