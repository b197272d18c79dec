"""The weights that the lessons load: small enough to be kept, good enough to learn from."""

from itertools import islice

import numpy as np
from safetensors import safe_open

from course.sources import LESSONS
from minitransformer.decoding import Translator
from minitransformer.grammar import sample
from minitransformer.models import build_model
from minitransformer.training.checkpoint import load_checkpoint

WEIGHTS = LESSONS / "weights" / "en-de.safetensors"


def test_the_trained_weights_are_small_and_translate_sentences_that_they_never_saw():
    assert WEIGHTS.stat().st_size <= 3_000_000
    translator = Translator.from_checkpoint(WEIGHTS)
    assert translator.languages == ("en", "de")
    examples = list(islice(sample("test", 0), 200))
    output = translator.translate([example.english for example in examples], beam=1)
    assert np.mean([text == example.german for text, example in zip(output, examples, strict=True)]) > 0.85


def test_a_checkpoint_of_the_first_edition_loads_under_today_s_names():
    """Norms stood in residual connections then; the file that comes with the lessons was written so."""
    with safe_open(WEIGHTS, framework="numpy") as file:
        written = set(file.keys())
        gamma = file.get_tensor("encoder.layers.0.attention_residual.norm.gamma")
    assert any("_residual.norm." in name for name in written)
    model = load_checkpoint(WEIGHTS, with_optimizer=False).model()
    named = model.parameters.named
    assert named.keys() == build_model(model.config).parameters.named.keys()
    np.testing.assert_array_equal(named["encoder.layers.0.self_attention_norm.gamma"].data, gamma)
    assert not any("residual" in name for name in named)
