"""The engine in JavaScript against NumPy, on the course's translator: what it says, searches and shows inside."""

import math
from typing import Any

import numpy as np
import pytest
from support.explorer_engine import (
    COURSE,
    Call,
    Course,
    Result,
    course_of,
    forward_of,
    input_gradients,
    needs_node,
    payload_of,
    relative_error,
    run_engine,
    timed_engine,
)
from support.explorer_patches import PAIR, patch_at, shares_of

from minitransformer.decoding import Sampling, open_checkpoint
from minitransformer.inside import attention_maps, logit_lens

pytestmark = needs_node

LOGITS = 1e-4
GRADIENTS = 1e-4
NOTHING = {"heads": [], "sublayers": [], "masked": [], "unplaced": [], "patches": []}


def target_of(course: Course, number: int) -> list[int]:
    """Return the ids that the decoder reads when it writes a sentence's greedy output."""
    return [course.model.config.bos_id, *course.greedy[number].ids]


def inputs_of(course: Course, number: int) -> dict[str, Any]:
    return {"source": course.sources[number], "target": target_of(course, number)}


some_sentences = pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.slow)])


@some_sentences
def test_the_logits_of_sentences_are_numpys(count: int) -> None:
    course, numbers = course_of(count), range(count)
    found = run_engine(course.payload, [Call("trace", [inputs_of(course, n)], ["logits", "logProbs"]) for n in numbers])
    for number, (logits, log_probs) in zip(numbers, found, strict=True):
        expected = forward_of(course.model, course.sources[number], target_of(course, number))
        np.testing.assert_allclose(logits, expected, rtol=0, atol=LOGITS)
        np.testing.assert_allclose(log_probs, course.model.ops.log_softmax(expected), rtol=0, atol=LOGITS)


@some_sentences
@pytest.mark.parametrize("beams", [1, 4])
def test_searches_find_the_same_tokens_with_the_same_scores(count: int, beams: int) -> None:
    course = course_of(count)
    expected = course.greedy if beams == 1 else course.beam
    start = [{"source": source, "target": [course.model.config.bos_id]} for source in course.sources]
    calls = [Call("search", [inputs, {"beams": beams}], ["result.hypotheses.0"]) for inputs in start]
    for (found,), hypothesis in zip(run_engine(course.payload, calls), expected, strict=True):
        assert found["ids"] == hypothesis.ids
        assert found["ended"] == hypothesis.ended
        assert found["score"] == pytest.approx(hypothesis.score, abs=1e-5)
        assert found["logProb"] == pytest.approx(hypothesis.log_prob, abs=1e-5)
        assert found["text"] == course.tokenizer.decode(hypothesis.ids)


def test_a_trace_shows_numpys_attention_weights_and_adds_up(course: Course) -> None:
    inputs = inputs_of(course, 0)
    (trace,) = run_engine(course.payload, [Call("trace", [inputs])])
    maps = attention_maps(course.model, *(np.array([ids]) for ids in inputs.values()))
    for name, weights in maps.items():
        stack, _, layer, kind = name.split(".")
        sublayer = next(each for each in trace[stack]["layers"][int(layer)]["sublayers"] if each["kind"] == kind)
        heads = sublayer["attention"]["heads"]
        np.testing.assert_allclose(np.stack([head["weights"] for head in heads]), weights[0], rtol=0, atol=1e-5)
        _check_heads(sublayer["attention"], course.model.parameters.named[f"{name}.output.weight"].value)
    for stack in ("encoder", "decoder"):
        residual = trace[stack]["embedding"] + trace[stack]["positions"]
        np.testing.assert_allclose(trace[stack]["input"], residual, atol=1e-6)
        for layer in trace[stack]["layers"]:
            for sublayer in layer["sublayers"]:
                _check_sublayer(sublayer, residual)
                residual = sublayer["after"]
        np.testing.assert_array_equal(trace[stack]["output"], residual)


def _check_heads(attention: dict[str, Any], projection: np.ndarray) -> None:
    """Each head's numbers follow from one another as the types say."""
    for number, head in enumerate(attention["heads"]):
        scores = head["query"] @ head["key"].T * attention["scale"]
        np.testing.assert_allclose(head["scores"], scores, atol=1e-5)
        seen = np.isfinite(head["masked"])
        np.testing.assert_array_equal(head["masked"][seen], head["scores"][seen])
        np.testing.assert_allclose(head["output"], head["weights"] @ head["value"], atol=1e-5)
        width = head["value"].shape[1]
        part = slice(number * width, (number + 1) * width)
        np.testing.assert_allclose(attention["mixed"][:, part], head["output"], atol=1e-6)
        np.testing.assert_allclose(head["valueNorms"], np.linalg.norm(head["value"], axis=1), rtol=1e-5)
        projected = np.linalg.norm(head["value"] @ projection[part], axis=1)
        np.testing.assert_allclose(head["projectedNorms"], projected, rtol=1e-5)


def _check_sublayer(sublayer: dict[str, Any], before: np.ndarray) -> None:
    """The paper's order: norm after the sum."""
    np.testing.assert_array_equal(sublayer["before"], before)
    np.testing.assert_array_equal(sublayer["read"], before)
    np.testing.assert_allclose(sublayer["sum"], before + sublayer["contribution"], atol=1e-6)
    norm = sublayer["norm"]
    normed = (norm["input"] - norm["mean"][:, None]) * norm["rstd"][:, None]
    np.testing.assert_allclose(norm["normed"], normed, atol=1e-5)
    np.testing.assert_array_equal(sublayer["after"], norm["output"])


def test_the_logit_lens_is_numpys(course: Course) -> None:
    inputs, position, count = inputs_of(course, 1), 2, 6
    token = course.greedy[1].ids[2]
    calls = [Call("trace", [inputs], []), Call("lens", [Result(0), position, count, token])]
    entries = [entry for entry in run_engine(course.payload, calls)[1] if entry["isLayer"]]
    lens = logit_lens(course.model, *(np.array([ids]) for ids in inputs.values()))[:, 0, position]  # (layers + 1, V)
    log_probs = course.model.ops.log_softmax(lens)
    assert [entry["layer"] for entry in entries] == [0, 1, 2]
    for entry, expected in zip(entries, log_probs, strict=True):
        best = np.argsort(-expected, kind="stable")[:count]
        assert [candidate["token"]["id"] for candidate in entry["top"]] == best.tolist()
        found = [candidate["logProb"] for candidate in entry["top"]]
        np.testing.assert_allclose(found, expected[best], atol=LOGITS)
        np.testing.assert_allclose([candidate["probability"] for candidate in entry["top"]], np.exp(found), rtol=1e-6)
        assert entry["target"]["logProb"] == pytest.approx(expected[token], abs=LOGITS)
        assert entry["target"]["rank"] == int((expected > expected[token]).sum())


def test_gradients_are_those_of_numpys_backward_in_float64(course: Course) -> None:
    cases = [(number, min(number, len(course.greedy[number].ids) - 1)) for number in range(12)]
    calls = []
    for number, position in cases:
        calls.append(Call("trace", [inputs_of(course, number)], ["encoder.embedding", "decoder.embedding"]))
        calls.append(Call("gradient", [Result(len(calls) - 1), position, course.greedy[number].ids[position]]))
    answers = run_engine(course.payload, calls)
    for (number, position), embeddings, found in zip(cases, answers[::2], answers[1::2], strict=True):
        token = course.greedy[number].ids[position]
        sides = input_gradients(course.exact, course.sources[number], target_of(course, number), position, token)
        for name, embedding, expected in zip(("source", "target"), embeddings, sides, strict=True):
            vectors = found[name]["vectors"]
            assert relative_error(vectors, expected) <= GRADIENTS
            np.testing.assert_allclose(found[name]["norms"], np.linalg.norm(vectors, axis=1), rtol=1e-5, atol=1e-9)
            product = (vectors * embedding).sum(axis=1)
            np.testing.assert_allclose(found[name]["gradientTimesInput"], product, rtol=1e-3, atol=1e-5)


def test_what_is_switched_off_counts_as_zeroed_weights(course: Course) -> None:
    source, target = course.sources[2], target_of(course, 2)
    off = {
        "heads": [
            {"stack": "encoder", "layer": 0, "kind": "self_attention", "head": 1},
            {"stack": "decoder", "layer": 1, "kind": "cross_attention", "head": 5},
        ],
        "sublayers": [
            {"stack": "decoder", "layer": 0, "kind": "feed_forward"},
            {"stack": "encoder", "layer": 1, "kind": None},
        ],
    }
    model, _, _ = open_checkpoint(COURSE, dtype="float64")
    zero = {name: parameter.value for name, parameter in model.parameters.named.items()}
    zero["encoder.layers.0.self_attention.output.weight"][16:32] = 0
    zero["decoder.layers.1.cross_attention.output.weight"][80:96] = 0
    for place in ("decoder.layers.0.feed_forward.contract", "encoder.layers.1.feed_forward.contract"):
        zero[f"{place}.weight"][...] = zero[f"{place}.bias"][...] = 0
    zero["encoder.layers.1.self_attention.output.weight"][...] = 0
    zero["encoder.layers.1.self_attention.output.bias"][...] = 0
    _check_intervention(course, model, source, target, off)


def test_masked_positions_are_seen_by_nobody(course: Course) -> None:
    source, target = course.sources[3], target_of(course, 3)
    source_mask, target_mask = (np.ones((1, len(ids)), bool) for ids in (source, target))
    source_mask[0, [1, 3]] = target_mask[0, 1] = False
    off = {
        "masked": [
            *({"stack": "encoder", "position": place} for place in (1, 3)),
            {"stack": "decoder", "position": 1},
        ]
    }
    _check_intervention(course, course.exact, source, target, off, source_mask=source_mask, target_mask=target_mask)


def test_unplaced_positions_get_no_encoding(course: Course) -> None:
    source, target = course.sources[4], target_of(course, 4)
    off = {"unplaced": [{"stack": stack, "position": 2} for stack in ("encoder", "decoder")]}
    model: Any = open_checkpoint(COURSE, dtype="float64").model
    model.encoder.embedding.positions.table[2] = 0  # both stacks share it
    _check_intervention(course, model, source, target, off)


def _check_intervention(
    course: Course, model: Any, source: list[int], target: list[int], off: dict[str, Any], **options: Any
) -> None:
    """A pass, its gradient, a forced search and the comparison, against a changed model of NumPy's."""
    off = {**NOTHING, **off}
    inputs, tokens = {"source": source, "target": target}, [*target[1:], course.model.config.eos_id]
    position, token = len(target) - 2, target[-1]
    start = {"source": source, "target": target[:1]}
    forced = {"beams": 1, "prefix": tokens, "interventions": off}
    original, changed, gradient, compared, search = run_engine(
        course.payload,
        [
            Call("trace", [inputs], ["logits"]),
            Call("trace", [inputs, off], ["logits"]),
            Call("gradient", [Result(1), position, token]),
            Call("compare", [Result(0), Result(1), tokens]),
            Call("search", [start, forced], ["result.hypotheses.0"]),
        ],
    )
    expected = forward_of(model, source, target, **options)
    np.testing.assert_allclose(changed[0], expected, rtol=0, atol=LOGITS)
    assert np.abs(changed[0] - original[0]).max() > 0.1
    places = np.arange(len(tokens)), tokens
    log_softmax = course.exact.ops.log_softmax
    after, before = (log_softmax(each)[places] for each in (expected, forward_of(course.exact, source, target)))
    np.testing.assert_allclose(compared["difference"], after - before, atol=LOGITS)
    assert compared["totalDifference"] == pytest.approx((after - before).sum(), abs=1e-3)
    if not options:  # a mask of the source is no option of the backward's helper
        sides = input_gradients(model, source, target, position, token)
        assert relative_error(gradient["source"]["vectors"], sides[0]) <= GRADIENTS
        assert relative_error(gradient["target"]["vectors"], sides[1]) <= GRADIENTS
    assert search[0]["ids"] == tokens[:-1]
    assert search[0]["logProb"] == pytest.approx(after.sum(), abs=1e-3)


def test_own_numbers_change_no_bit_and_the_whole_memory_of_the_other_is_the_other(course: Course) -> None:
    own, other = ({"source": [*course.tokenizer.encode(text), 2], "target": [1]} for text in PAIR)
    spots = [patch_at("encoder", 1, 3), patch_at("encoder", 1, None, head=2), patch_at("encoder", 2, None)]
    calls = [Call("trace", [each], ["logits"]) for each in (own, other)]
    for donor, spot in ((0, spots[0]), (0, spots[1]), (1, spots[2])):
        calls += [
            Call("patch", [NOTHING, Result(donor), spot], []),
            Call("trace", [own, Result(len(calls))], ["logits"]),
        ]
    mine, others, _, same, _, also, _, whole = run_engine(course.payload, calls)
    for found, expected in ((same, mine), (also, mine), (whole, others)):
        np.testing.assert_array_equal(found[0], expected[0])
    assert np.abs(mine[0] - others[0]).max() > 1


def test_the_share_that_a_patch_brings_over_is_numpys(course: Course) -> None:
    own, other = ([*course.tokenizer.encode(text), 2] for text in PAIR)
    tokens, rows = shares_of(course.exact, own, other)
    calls = [Call("trace", [{"source": ids, "target": [1]}], []) for ids in (own, other)]
    calls += [Call("patches.js:leaningOf", [Result(n), tokens]) for n in (0, 1)]
    for layer, position in ((0, 2), (1, 2), (1, 0), (2, 0)):
        here = len(calls)
        calls += [
            Call("patch", [NOTHING, Result(1), patch_at("encoder", layer, position)], []),
            Call("trace", [{"source": own, "target": [1]}, Result(here)], []),
            Call("patches.js:leaningOf", [Result(here + 1), tokens]),
            Call("patches.js:shareOf", [Result(here + 2), Result(2), Result(3)]),
        ]
        assert np.abs(rows[layer][position]) > 0.01
    found = run_engine(course.payload, calls)
    assert found[2]["probabilities"][0] > 0.5 < found[3]["probabilities"][1]
    np.testing.assert_allclose(found[7::4], [rows[0][2], rows[1][2], rows[1][0], rows[2][0]], atol=1e-4)


def test_a_search_returns_its_whole_tree(course: Course) -> None:
    start = {"source": course.sources[5], "target": [course.model.config.bos_id]}
    (found,) = run_engine(course.payload, [Call("search", [start, {"beams": 3, "lengthPenalty": 1.0}])])
    nodes, steps = found["result"]["nodes"], found["steps"]
    assert [node["id"] for node in nodes] == list(range(len(nodes)))
    assert [node["id"] for step in steps for node in step["nodes"]] == list(range(1, len(nodes)))
    assert [step["isDone"] for step in steps] == [False] * (len(steps) - 1) + [True]
    slots = 3
    for step in steps:
        statuses = [node["status"] for node in step["nodes"]]
        assert statuses == sorted(statuses, key=lambda status: status == "dropped"), "the best are kept"
        assert len(statuses) - statuses.count("dropped") == min(slots, len(statuses))
        slots -= statuses.count("ended")
        assert step["openSlots"] == slots
        for rank, node in enumerate(step["nodes"]):
            parent = nodes[node["parent"]]
            assert (node["rank"], node["depth"]) == (rank, step["length"])
            assert node["logProb"] == pytest.approx(parent["logProb"] + node["tokenLogProb"])
            assert node["score"] == pytest.approx(node["logProb"] / ((5 + node["depth"]) / 6))
            assert parent["status"] == "kept"
    for hypothesis in found["result"]["hypotheses"]:
        assert nodes[hypothesis["node"]]["score"] == hypothesis["score"]


def test_a_forced_prefix_begins_the_output(course: Course) -> None:
    start = {"source": course.sources[6], "target": [course.model.config.bos_id]}
    prefix = course.tokenizer.encode("Die alte Frau")
    (found,) = run_engine(course.payload, [Call("search", [start, {"beams": 2, "prefix": prefix}])])
    assert [step["nodes"][0]["status"] for step in found["steps"][: len(prefix)]] == ["forced"] * len(prefix)
    assert found["result"]["hypotheses"][0]["ids"][: len(prefix)] == prefix


def test_samples_repeat_and_follow_the_distribution(course: Course) -> None:
    start = {"source": course.sources[0], "target": [course.model.config.bos_id]}
    options = [{"seed": 3, "temperature": 1.5, "topK": 5}] * 2 + [{"temperature": 0}]
    options += [{"seed": seed, "temperature": 3, "maxTokens": 1} for seed in range(200)]
    first, again, best, *drawn = run_engine(course.payload, [Call("sample", [start, each]) for each in options])
    assert first == again
    assert best["result"]["ids"] == course.greedy[0].ids
    for step in first["steps"]:
        shares = [candidate["probability"] for candidate in step["top"]]
        assert sum(shares[:5]) == pytest.approx(1)
        assert shares[5:] == [0] * 15
        assert step["probability"] > 0
    top = drawn[0]["steps"][0]["top"][0]
    share = np.mean([each["steps"][0]["token"]["id"] == top["token"]["id"] for each in drawn])
    assert abs(share - top["probability"]) < 4 * math.sqrt(top["probability"] / 200)
    assert len({each["steps"][0]["token"]["id"] for each in drawn}) > 30


def test_the_distribution_that_a_sample_is_drawn_from_is_the_librarys() -> None:
    logits = np.random.default_rng(3).normal(size=(5, 40)).round(1).astype(np.float32)  # with equal ones
    for temperature, top_k in ((1, None), (0, None), (0.3, 4), (2.5, 7), (1, 1), (1, 999)):
        calls = [Call("sampling.js:probabilities", [row.tolist(), temperature, top_k]) for row in logits]
        for row, found in zip(logits, run_engine(None, calls), strict=True):
            sampling = Sampling(temperature=temperature, top_k=top_k)
            np.testing.assert_allclose(found, sampling.probabilities(row, np.array([])), atol=1e-7)


def test_int8_says_what_it_changes_and_the_page_computes_the_same(course: Course) -> None:
    from minitransformer.explorer.storage import measure_loss, stored_as_int8

    sentences = [course.tokenizer.decode(source) for source in course.sources[:12]]
    loss = measure_loss(course.model, course.tokenizer, sentences)
    assert 0 < loss.mean_difference < loss.max_difference < 0.2
    assert loss.sentences == 12
    assert loss.equal_outputs >= 11
    content = payload_of(course.model, course.tokenizer, loss=loss)
    assert len(content["weights"]) < 0.27 * len(course.payload["weights"])
    assert content["loss"]["maxDifference"] == loss.max_difference
    twin = stored_as_int8(course.model)
    calls = [Call("trace", [inputs_of(course, 0)]), Call("gradient", [Result(0), 1, course.greedy[0].ids[1]])]
    trace, gradient = run_engine(content, calls)
    expected = forward_of(twin, course.sources[0], target_of(course, 0))
    np.testing.assert_allclose(trace["logits"], expected, rtol=0, atol=LOGITS)
    _check_heads(
        trace["decoder"]["layers"][0]["sublayers"][1]["attention"],
        twin.parameters.named["decoder.layers.0.cross_attention.output.weight"].value,
    )
    sides = input_gradients(twin, course.sources[0], target_of(course, 0), 1, course.greedy[0].ids[1])
    for side, vectors in zip(("source", "target"), sides, strict=True):
        assert relative_error(gradient[side]["vectors"], vectors) <= GRADIENTS


def test_what_a_model_cannot_read_is_refused(course: Course) -> None:
    cases = {
        "the source has no tokens": {"source": [], "target": [1]},
        "the target has no tokens": {"source": [5, 2], "target": []},
        "more than the model's 128": {"source": [5] * 129, "target": [1]},
        "holds 2000, which is no id": {"source": [2000], "target": [1]},
        "holds 1.5, which is no id": {"source": [5], "target": [1.5]},
    }
    answers = timed_engine(course.payload, [Call("trace", [inputs]) for inputs in cases.values()])
    for says, answer in zip(cases, answers, strict=True):
        assert answer["error"].startswith("RangeError")
        assert says in answer["error"]


def test_what_cannot_be_asked_is_refused(course: Course) -> None:
    start = {"source": course.sources[0], "target": [1]}
    cases = {
        "the prefix holds 2000": Call("search", [start, {"prefix": [5, 2000]}]),
        "the prefix holds -1": Call("sample", [start, {"prefix": [-1]}]),
        "beams is 0": Call("search", [start, {"beams": 0}]),
        "temperature is -1": Call("sample", [start, {"temperature": -1}]),
        "the target has no position 1": Call("gradient", [Result(0), 1, 5]),
        "the question holds 2000": Call("gradient", [Result(0), 0, 2000]),
        "lengths 1, 1, 2": Call("compare", [Result(0), Result(0), [5, 6]]),
        "the comparison holds 0.5": Call("compare", [Result(0), Result(0), [0.5]]),
    }
    _, *answers = timed_engine(course.payload, [Call("trace", [start], []), *cases.values()])
    for says, answer in zip(cases, answers, strict=True):
        assert answer["error"].startswith(f"RangeError: {says}" if says[0] != "l" else "RangeError: the passes")
        assert says in answer["error"]


def test_long_texts_are_cut_and_blank_ones_have_no_tokens(course: Course) -> None:
    long, blank, short = run_engine(
        course.payload, [Call("encodeSource", [text]) for text in ("the dog " * 100, " \t\n", "A dog.")]
    )
    assert long["isCut"]
    assert len(long["ids"]) == 128
    assert long["ids"][-1] == course.model.config.eos_id
    assert blank == {"ids": [], "isCut": False}
    assert short == {"ids": [*course.tokenizer.encode("A dog."), 2], "isCut": False}
