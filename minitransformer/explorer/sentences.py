"""Sentences of the grammar, for a page whose maker gave none."""

from itertools import islice
from typing import Any

from ..grammar import sample
from ..models import GPT

LANGUAGES = {"en": "english", "de": "german", "fr": "french"}
WORDS_OF_A_PROMPT = 3


def example_sentences(model: Any, languages: tuple[str, str] | None, count: int) -> list[str]:
    """Return sentences in a model's source language, or English if the grammar lacks it; beginnings for a GPT."""
    language = LANGUAGES.get(languages[0] if languages else "en", "english")
    sentences: list[str] = [getattr(each, language) for each in islice(sample("test", seed=0), count)]
    sentences.sort(key=len)  # a short one is understood at a glance
    if isinstance(model, GPT):
        return [" ".join(sentence.split()[:WORDS_OF_A_PROMPT]) for sentence in sentences]
    return sentences
