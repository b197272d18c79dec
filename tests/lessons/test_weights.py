"""The weights that the lessons load: small enough to be kept, good enough to learn from."""

from dataclasses import replace
from itertools import islice

import numpy as np
from safetensors import safe_open

from course.sources import LESSONS
from minitransformer.decoding import Translator
from minitransformer.grammar import sample
from minitransformer.training.checkpoint import load_checkpoint, save_checkpoint

WEIGHTS = LESSONS / "weights" / "en-de.safetensors"


def test_the_trained_weights_are_small_and_translate_sentences_that_they_never_saw():
    assert WEIGHTS.stat().st_size <= 3_000_000
    translator = Translator.from_checkpoint(WEIGHTS)
    assert translator.languages == ("en", "de")
    examples = list(islice(sample("test", 0), 200))
    output = translator.translate([example.english for example in examples], beam=1)
    assert np.mean([text == example.german for text, example in zip(output, examples, strict=True)]) > 0.85


def test_a_checkpoint_of_the_first_edition_loads_under_today_s_names(tmp_path):
    """Norms stood in residual connections then: `attention_residual.norm` in an encoder's layer."""
    today = load_checkpoint(WEIGHTS, with_optimizer=False)

    def then(name: str) -> str:
        if name.startswith("encoder"):
            name = name.replace(".self_attention_norm.", ".attention_residual.norm.")
        return name.replace("_norm.", "_residual.norm.")

    written = {then(name): array for name, array in today.parameters.items()}
    save_checkpoint(tmp_path / "old.safetensors", replace(today, parameters=written))
    with safe_open(tmp_path / "old.safetensors", framework="numpy") as file:
        assert "encoder.layers.0.attention_residual.norm.gamma" in file.keys()  # noqa: SIM118 - it is no dictionary
    loaded = load_checkpoint(tmp_path / "old.safetensors")
    assert loaded.parameters.keys() == today.parameters.keys()
    for name, array in today.parameters.items():
        np.testing.assert_array_equal(loaded.parameters[name], array)
