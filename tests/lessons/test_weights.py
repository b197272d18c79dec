"""The weights that the lessons load: small enough to be kept, good enough to learn from."""

from itertools import islice

import numpy as np

from course.sources import LESSONS
from minitransformer.decoding import Translator
from minitransformer.grammar import sample

WEIGHTS = LESSONS / "weights" / "en-de.safetensors"


def test_the_trained_weights_are_small_and_translate_sentences_that_they_never_saw():
    assert WEIGHTS.stat().st_size <= 3_000_000
    translator = Translator.from_checkpoint(WEIGHTS)
    assert translator.languages == ("en", "de")
    examples = list(islice(sample("test", 0), 200))
    output = translator.translate([example.english for example in examples], beam=1)
    assert np.mean([text == example.german for text, example in zip(output, examples, strict=True)]) > 0.85
