"""The page of a recorded run: its numbers are the recording's, and no text on it is more than text."""

import base64
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import NEEDS, marks, run_in_a_browser
from support.elements import Elements
from support.explorer_engine import COURSE

from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.decoding import Generator, Sampling, Translator, open_checkpoint
from minitransformer.inside import Recording, page, record
from minitransformer.inside.page import TEMPLATE, Reading, in_page, look_inside, payload, read
from minitransformer.models import (
    BERTConfig,
    CaptionerConfig,
    GPTConfig,
    RecurrentConfig,
    T5Config,
    TransformerConfig,
    ViTConfig,
)
from minitransformer.models import build_model as built

SENTENCE = "The old teacher reads a book."
TOKENIZER = BPETokenizer.train([SENTENCE, "A dog sleeps in the garden."], 300)
SIZES: dict[str, Any] = {"d_model": 24, "num_heads": 3, "d_ff": 20, "num_layers": 2, "max_length": 60}
ALONE: dict[str, Any] = SIZES | {"d_ff": 0}
V = TOKENIZER.vocab_size
CONFIGS: dict[str, Any] = {
    "gpt": GPTConfig(V, **SIZES, eos_id=2),
    "gated": GPTConfig(V, **SIZES, eos_id=2, gated=True, norm="rmsnorm", positions="rotary", num_kv_heads=1),
    "sandwich": GPTConfig(V, **SIZES, eos_id=2, extra_norms="outputs"),
    "post-norm": GPTConfig(V, **SIZES, eos_id=2, norm_first=False),
    "linear": GPTConfig(V, **SIZES, eos_id=2, attention="linear", attention_dropout=0.0),
    "attention alone": GPTConfig(V, **ALONE, eos_id=2),
    "bert": BERTConfig(V + 1, **SIZES, mask_id=V),
    "classes": BERTConfig(V + 1, **SIZES, head="classes"),
    "transformer": TransformerConfig(V, **SIZES),
    "t5": T5Config(V, **SIZES, d_k=8, bos_id=1, eos_id=2),
}
"""One model of each kind, and those of which less can be said."""
HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> <b>\u202e\u2028 &amp; %PAYLOAD% %HASH% "


def shown(name: str) -> tuple[Any, Reading, Recording, dict[str, Any]]:
    """A model with weights of order one, what it reads, its run, and what the page gets."""
    model = built(CONFIGS[name], dtype="float64")
    rng = np.random.default_rng(0)
    for each in model.parameters.named.values():
        each.data += 0.2 * rng.standard_normal(each.shape)
    text = SENTENCE.replace("old", "[MASK]") if name == "bert" else SENTENCE
    reading = read(model, TOKENIZER, text, 3 if name == "gpt" else None)
    recording = record(model, *reading.inputs)
    return model, reading, recording, json.loads(json.dumps(payload(model, TOKENIZER, name, reading, recording)))


@pytest.mark.parametrize("name", CONFIGS)
def test_its_numbers_are_those_of_the_run(name: str) -> None:
    model, reading, recording, content = shown(name)
    pieces, maps = content["pieces"], zlib.decompress(base64.b64decode(content["maps"]))
    assert list(content["sides"]) == list(recording.streams)
    for side, stream in recording.streams.items():
        found = content["sides"][side]
        expected = ["[MASK]" if id == V else TOKENIZER.tokens([id])[0] for id in reading.ids[side]]
        assert [pieces[each] for each in found["tokens"]] == expected
        np.testing.assert_allclose(found["norms"], np.linalg.norm(stream.states[:, 0], axis=-1), rtol=1e-3)
        assert list(found["added"]) == list(stream.contributions)
        for part, added in stream.contributions.items():
            np.testing.assert_allclose(found["added"][part], np.linalg.norm(added[:, 0], axis=-1), rtol=1e-3)
        for layer, firing in enumerate(found["neurons"]):
            for t, of_token in enumerate(firing):
                values = stream.neurons[layer, 0, t]
                indices = [found["fired"][number][0] for number, _ in of_token]
                np.testing.assert_array_equal(indices, np.argsort(-abs(values), kind="stable")[:4])
                np.testing.assert_allclose([value for _, value in of_token], values[indices], rtol=1e-3)
                for number, value in of_token:
                    index, places, _ = found["fired"][number]
                    along = np.sign(value) * stream.neurons[layer, 0, :, index]
                    best = [place for place in np.argsort(-along, kind="stable")[:3] if along[place] > 0]
                    assert [place for place, _ in places] == best
    seen = dict(recording.maps())
    for part in content["parts"]:
        attention = "cross" if part["name"] == "cross" else "self"
        for layer in range(2 if part["heads"] else 0):
            weights = seen.pop(f"{part['rows']}.layers.{layer}.{attention}_attention")[0]
            assert weights.shape[1:] == tuple(len(reading.ids[part[axis]]) for axis in ("rows", "columns"))
            start = part["offset"] + layer * weights.size
            array = np.frombuffer(maps, np.uint8)[start : start + weights.size].reshape(weights.shape)
            assert abs(array / 255 - weights).max() <= 0.5 / 255 + 1e-12
    assert not seen
    if name == "classes":
        assert content["lens"] is None
        return
    for layer, logits in enumerate(recording.lens()):
        chances = np.exp(logits[0]) / np.exp(logits[0]).sum(-1, keepdims=True)
        for t, best in enumerate(content["lens"][layer]):
            expected = np.argsort(-chances[t], kind="stable")[:6]
            assert [pieces[piece] for piece, _ in best] == page.names_of(model, TOKENIZER)(expected)
            np.testing.assert_allclose([chance for _, chance in best], chances[t][expected], rtol=1e-3)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_neuron_raises_is_what_more_of_it_would_raise(name: str) -> None:
    """Where it can be told: one that fires without measure decides the logits, but for what the norm's bias adds."""
    model, _, _, content = shown(name)
    *_, (side, found) = content["sides"].items()
    known = [raises for _, _, raises in found["fired"] if raises is not None]
    assert bool(known) == (name in ("gpt", "gated", "linear", "t5"))
    assert len(known) in (0, len(found["fired"]))
    stack, pieces = getattr(model, side), content["pieces"]
    for layer, firing in enumerate(found["neurons"] if known else []):
        for number, value in firing[0]:
            contract = stack.layers[layer].feed_forward.contract
            one = np.zeros((1, 1, contract.weight.shape[0]))
            one[..., found["fired"][number][0]] = 1e9 * np.sign(value)
            after, before = (
                model.output.logits(stack.final_norm.forward(x)[0])[0][0, 0]
                for x in (contract.forward(one)[0], np.zeros((1, 1, SIZES["d_model"])))
            )
            expected = page.names_of(model, TOKENIZER)(np.argsort(before - after)[:6])
            assert [pieces[piece] for piece in found["fired"][number][2]] == expected


def test_the_work_for_what_neurons_raise_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_PRODUCTS", 2 * 5 * V * SIZES["d_model"])
    _, _, recording, content = shown("gpt")
    (side,) = content["sides"].values()
    for layer, firing in enumerate(side["neurons"]):
        numbers = {number for of_token in firing for number, _ in of_token}
        known = {side["fired"][number][0] for number in numbers if side["fired"][number][2]}
        assert len(known) == 5
        assert abs(recording.streams["decoder"].neurons[layer]).max(axis=(0, 1)).argmax() in known


def test_a_gpt_goes_on_and_a_translator_writes_first() -> None:
    model, reading, _, content = shown("gpt")
    ids = Generator(model, TOKENIZER).encode(SENTENCE)
    assert reading.written == len(ids) == content["sides"]["decoder"]["written"]
    went_on = Generator(model, TOKENIZER).generate(SENTENCE, 3, Sampling(temperature=0.0))[0]
    assert TOKENIZER.decode(reading.ids["decoder"]) == SENTENCE + went_on
    model = built(CONFIGS["transformer"])
    reading = read(model, TOKENIZER, SENTENCE)
    (source,) = Translator(model, TOKENIZER).encode(SENTENCE, truncate=False)
    assert reading.ids["encoder"] == source
    for t, id in enumerate(reading.ids["decoder"][1:], start=1):  # each is the best token after those before it
        logits = model.forward([source], [reading.ids["decoder"][:t]])[0][0, -1]
        logits[[0, 1]] = -np.inf  # padding and the begin mark are never written
        assert id == logits.argmax()
    assert len(read(model, TOKENIZER, SENTENCE, 2).ids["decoder"]) == 3


@pytest.mark.parametrize(
    ("config", "text", "more", "says"),
    [
        (CONFIGS["gpt"], " \n", None, "the text is blank"),
        (
            CONFIGS["gpt"],
            SENTENCE * 2,
            40,
            "tokens and the model shall write 40 more, but a page of this model shows at",
        ),
        (CONFIGS["transformer"], SENTENCE * 20, None, "tokens, but a page of this model shows at most 60: shorten it"),
        (GPTConfig(V, 8, 2, 8, 1, max_length=999), "dog " * 400, None, "a page of this model shows at most 256"),
        (CONFIGS["bert"], SENTENCE, 3, "a BERT writes no tokens"),
        (GPTConfig(V - 1, 8, 2, 8, 1), SENTENCE, None, "don't belong together"),
        (
            ViTConfig(image_size=4, patch_size=2, channels=1, d_model=8, num_heads=2, d_ff=8, num_layers=1),
            SENTENCE,
            None,
            "one of kind 'vit' is for pictures",
        ),
        (
            CaptionerConfig(V, image_size=4, d_model=8, num_heads=2),
            SENTENCE,
            None,
            "one of kind 'captioner' is for pictures",
        ),
        (RecurrentConfig(V, d_model=8), SENTENCE, None, "a recurrent model has no layers to look into"),
    ],
)
def test_what_it_refuses(config: Any, text: str, more: int | None, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        look_inside(built(config), TOKENIZER, text, tmp_path / "page.html", max_tokens=more)
    assert not list(tmp_path.iterdir())


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = built(CONFIGS["gpt"])
    model.parameters.named["decoder.layers.1.feed_forward.expand.weight"].data[...] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        look_inside(model, TOKENIZER, SENTENCE, tmp_path / "page.html")


def hostile(path: Path) -> bytes:
    """The page of a model whose name, text and tokens are markup."""
    tokenizer = BPETokenizer.train([HOSTILE] * 3, 330)
    look_inside(built(GPTConfig(330, **{**SIZES, "max_length": 200})), tokenizer, HOSTILE, path, name=HOSTILE)
    return path.read_bytes()


def test_no_text_is_more_than_text(tmp_path: Path) -> None:
    written = hostile(tmp_path / "page.html").decode()
    plain, found = Elements(TEMPLATE.read_text("utf-8")), Elements(written)
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    content = found.script("payload")
    assert "<" not in content
    pieces = json.loads(content)["pieces"]
    assert any("<" in each for each in pieces)
    assert all(each.isprintable() for each in [*pieces, json.loads(content)["name"]])


def test_it_asks_nobody_for_anything_and_runs_its_own_script_alone() -> None:
    found = Elements(in_page({"name": "x"}).decode())
    for tag, attributes in found.elements:
        assert not {"src", "href", "action", "srcset", "data"} & attributes.keys(), tag
        assert tag not in {"link", "iframe", "object", "embed", "base"}
    (policy,) = [each["content"] for _, each in found.elements if each.get("http-equiv")]
    script = found.script(None)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in str(policy).split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    for name in (
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "eval(",
        "write(",
    ):
        assert name not in script.replace("const write = ", "").replace("(write(", "("), name


class TestInABrowser:
    """As a visitor sees it: in Chromium, from the disk, without a network."""

    pytestmark = marks(NEEDS)

    def test_what_a_visitor_does(self, tmp_path: Path) -> None:
        model, tokenizer, _ = open_checkpoint(COURSE)
        reading = read(model, tokenizer, SENTENCE)
        recording = record(model, *reading.inputs)
        content = payload(model, tokenizer, "translator", reading, recording)
        (tmp_path / "translator.html").write_bytes(in_page(content))
        for name in ("gpt", "linear", "classes"):
            (tmp_path / f"{name}.html").write_bytes(in_page(shown(name)[3]))
        hostile(tmp_path / "hostile.html")
        weights = dict(recording.maps())["decoder.layers.0.cross_attention"][0]
        decoder = recording.streams["decoder"]
        expected = {
            "tokens": {side: tokenizer.tokens(ids) for side, ids in reading.ids.items()},
            "cross": weights.tolist(),
            "lens": [tokenizer.tokens(logits[0].argmax(-1)) for logits in recording.lens()],
            "norms": np.linalg.norm(decoder.states[:, 0], axis=-1).tolist(),
            "neurons": abs(decoder.neurons[:, 0]).argmax(-1).tolist(),
        }
        (tmp_path / "expected.json").write_text(json.dumps(expected), "utf-8")
        run_in_a_browser(Path(__file__).parent / "browser/inside.test.mjs", EXPLORER_PAGES=str(tmp_path))
