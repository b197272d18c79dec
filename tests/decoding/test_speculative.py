"""With a draft, texts are distributed as the model's own: by enumeration, by χ², and greedily token by token."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from math import lcm, prod
from typing import Any

import numpy as np
import pytest
from support.model_cases import CACHED

from kernels import torch_ops
from minitransformer import Generator, Sampling
from minitransformer.decoding import Draft, LayersDraft, ModelDraft, PromptDraft
from minitransformer.decoding.speculative import take
from minitransformer.layers import SparseConfig
from minitransformer.models import GPT, GPTConfig, build_model
from minitransformer.ops import numpy_ops

V = 7
GREEDY = Sampling(temperature=0)


class Letters:
    """A tokenizer whose token i is the i-th letter."""

    def __init__(self, vocab_size: int = V) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.tokens(ids))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [chr(ord("a") + each) for each in ids]


def gpt(seed: int, vocab_size: int = V, ops: Any = numpy_ops, **options: Any) -> GPT:
    """A model with opinions: nothing is nearly as good as the best token."""
    values: dict[str, Any] = {"num_layers": 2, "max_length": 48, "init_std": 0.5, **options}
    return build_model(GPTConfig(vocab_size, 8, 2, 16, **values), ops, "float64", seed)


DRAFTS: dict[str, Callable[[GPT, int], Draft]] = {
    "another model": lambda model, count: ModelDraft(gpt(9, model.config.vocab_size, window=3), count),
    "first layers": lambda model, count: LayersDraft(model, 1, count),
    "prompt": lambda model, count: PromptDraft(model.config.vocab_size, count),
}


# --- The rule -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocab_size", "k", "parts"), [(4, 2, 4), (5, 2, 4), (4, 3, 3)])
def test_the_rule_gives_the_models_distribution_exactly(vocab_size: int, k: int, parts: int):
    """The sum over all that may be proposed and drawn, for probabilities that are multiples of 1/parts.

    Every bound with which the rule compares a uniform number is then a multiple of 1/cells. So the middles of the cells
    stand for all numbers between 0 and 1, and nothing is left to chance.
    """
    rng = np.random.default_rng(k)
    p, q = (
        {
            prefix: rng.multinomial(parts, np.full(vocab_size, 1 / vocab_size)) / parts
            for length in range(k + 1)
            for prefix in product(range(vocab_size), repeat=length)
        }
        for _ in "pq"
    )
    cells = lcm(*range(1, parts + 1))
    uniforms = [(np.array(cell) + 0.5) / cells for cell in product(range(cells), repeat=k + 1)]
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for proposals in product(range(vocab_size), repeat=k):
        weight = prod(q[proposals[:i]][token] for i, token in enumerate(proposals)) / len(uniforms)
        if weight:
            here = np.array([p[proposals[:i]] for i in range(k + 1)])
            there = np.array([q[proposals[:i]] for i in range(k)])
            for each in uniforms:
                taken, last = take(here, there, proposals, each)
                found[*proposals[:taken], last] += weight
    assert {len(start) for start in found} == {*range(1, k + 2)}
    for text in product(range(vocab_size), repeat=k + 1):  # what is missing the model draws
        chances = [p[text[:i]][token] for i, token in enumerate(text)]
        reached = sum(found[text[:i]] * prod(chances[i:]) for i in range(1, k + 2))
        assert reached == pytest.approx(prod(chances), abs=1e-12)


@pytest.mark.parametrize("name", DRAFTS)
def test_texts_are_distributed_as_the_models(name: str):
    """All texts of three tokens, by χ², with rules of sampling that depend on the text and forbid some tokens."""
    model, count, prompt = gpt(1, 4, init_std=0.25), 600, [1, 2, 1, 2, 1]
    rules, draft = Sampling(temperature=0.8, top_p=0.95, repetition_penalty=3.0), DRAFTS[name](model, 2)
    generator = Generator(model, Letters(4), draft)
    seen = Counter(generator.generate("bcbcb", 3, replace(rules, seed=seed))[0] for seed in range(count))
    chi2, freedom = 0.0, -1
    for text in product(range(4), repeat=3):
        whole = np.array([*prompt, *text])
        logits = model.forward(whole[None])[0][0]
        chances = [rules.probabilities(logits[i - 1], whole[:i])[whole[i]] for i in (5, 6, 7)]
        expected, found = count * prod(chances), seen[Letters().decode(text)]
        assert expected or not found
        chi2, freedom = chi2 + (found - expected) ** 2 / (expected or 1), freedom + (expected > 0)
    assert freedom > 20
    assert chi2 < freedom + 4 * np.sqrt(2 * freedom)
    assert 0 < draft.accepted < draft.proposed


# --- The same texts -------------------------------------------------------------------------------------------

CACHES = CACHED | {"a pattern": {"window": 2, "sparse": SparseConfig(stride=4, global_tokens=1)}}


SIZES = ((1, 1, 60, {}), (2, 3, 9, {}), (3, 7, 60, {"eos_id": 2, "other_eos_ids": (5,)}))
"""The model's seed, the tokens that the draft proposes, the most tokens of a text, and its end marks."""


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("cache", CACHES)
def test_greedy_texts_are_those_without_a_draft(cache: str, draft: str):
    """From several prompts, up to the model's longest text, to an end mark, or to the most tokens asked for."""
    prompts, longest, refused, lengths = ["abcabcab", "abcd"], 0, 0, set[int]()
    for seed, count, most, marks in SIZES:
        model = gpt(seed, **marks, **CACHES[cache])
        chosen = DRAFTS[draft](model, count)
        drafted = Generator(model, Letters(), chosen)
        texts = Generator(model, Letters()).generate(prompts, most, GREEDY)
        assert drafted.generate(prompts, most, GREEDY) == texts
        assert "".join(drafted.stream(prompts[1], most, GREEDY)).startswith(texts[1])
        lengths |= {*map(len, texts)}
        refused += chosen.proposed - chosen.accepted
        longest = 60 if model.config.endless else model.config.max_length - len(prompts[0])
    assert refused > 10
    assert {9, longest} < lengths


@pytest.mark.parametrize("name", DRAFTS)
def test_what_the_tokenizer_lacks_is_not_written(name: str):
    model = gpt(1)
    plain, drafted = Generator(model, Letters()), Generator(model, Letters(), DRAFTS[name](model, 3))
    best = plain.generate("abcabcab", 1, GREEDY)[0]
    plain.forbidden = drafted.forbidden = Letters().encode(best)
    (text,) = drafted.generate("abcabcab", 9, GREEDY)
    assert [text] == plain.generate("abcabcab", 9, GREEDY)
    assert best not in text


def test_a_draft_that_is_the_model_is_never_refused():
    """Its own cache follows the text, also from one prompt to the next, and the model is called as rarely as can be."""
    draft = ModelDraft(gpt(1, init_std=1.0), 3)
    generator = Generator(gpt(1, init_std=1.0), Letters(), draft)
    for prompt, most in (("abc", 9), ("gfedcb", 5), ("abcgfg", 12), ("gga", 4)):
        generator.generate(prompt, most, Sampling(seed=most))
    assert draft.proposed == draft.accepted > 15
    assert draft.calls == -(-9 // 4) + -(-5 // 4) + -(-12 // 4) + -(-4 // 4)


def test_a_prompt_is_looked_up():
    def proposed(text: str, count: int = 3) -> str:
        ids, q = PromptDraft(V).propose(Letters().encode(text), count, GREEDY, np.random.default_rng(0))
        np.testing.assert_array_equal(q, np.eye(V)[ids].reshape(len(ids), V))
        return Letters().decode(ids)

    assert proposed("abcdeabfab") == "fab"  # of two places the last
    assert proposed("abcdefbgab") == "cde"  # of two places the one with more before it
    assert proposed("cab" * 9, 5) == "cabca"
    assert proposed("gfaaa") == "aaa"
    assert proposed("abba") == proposed("abc") == proposed("a") == ""


def test_tensors_give_the_same_texts():
    model, there = (gpt(2, ops=ops) for ops in (numpy_ops, torch_ops("cpu", "float64")))
    texts = Generator(model, Letters()).generate(["abab", "c"], 30, GREEDY)
    for name, make in DRAFTS.items():
        draft = ModelDraft(gpt(9, ops=there.ops)) if name == "another model" else make(there, 4)
        assert Generator(there, Letters(), draft).generate(["abab", "c"], 30, GREEDY) == texts


def test_a_draft_with_a_shorter_longest_text_stops_proposing():
    model, draft = gpt(1), ModelDraft(gpt(2, max_length=9))
    generator = Generator(model, Letters(), draft)
    assert generator.generate(["abcdef"], 20, GREEDY) == Generator(model, Letters()).generate(["abcdef"], 20, GREEDY)
    proposed = draft.proposed
    assert 0 < proposed < 12
    assert generator.generate("abcdefgabc", 9)
    assert draft.proposed == proposed


def test_what_is_no_draft_is_refused():
    with pytest.raises(ValueError, match="the draft has 6 tokens, and the model has 7"):
        Generator(gpt(1), Letters(), PromptDraft(6))
    with pytest.raises(ValueError, match="linear attention keeps sums"):
        Generator(gpt(1, attention="linear", attention_dropout=0.0), Letters(), PromptDraft(V))
    for count in (0, 2):
        with pytest.raises(ValueError, match=f"num_layers is {count}, expected at least 1 and fewer"):
            LayersDraft(gpt(1), count)
    with pytest.raises(ValueError, match="num_tokens is 0, expected 1 or more"):
        PromptDraft(V, 0)
