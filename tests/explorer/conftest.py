"""The course's translator, its float64 twin, and fifty sentences with what the library makes of them."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from support.explorer_engine import COURSE, Course, payload_of

from minitransformer.decoding import Translator, beam_search, greedy_search, open_checkpoint
from minitransformer.grammar import sample


@pytest.fixture(scope="session")
def course() -> Course:
    """Nobody changes it."""
    opened = open_checkpoint(COURSE)
    model: Any = opened.model
    tokenizer = opened.tokenizer
    exact = open_checkpoint(COURSE, dtype="float64").model
    sentences = [each.english for each in islice(sample("test", seed=7), 50)]
    sources = Translator(model, tokenizer).encode(sentences, truncate=False)
    rows = [np.array([ids]) for ids in sources]
    greedy = [greedy_search(model, row, length_penalty=0.6)[0] for row in rows]
    beam = [beam_search(model, row, num_beams=4)[0][0] for row in rows]
    return Course(model, exact, tokenizer, payload_of(model, tokenizer), sources, greedy, beam)
