"""The page in a browser: what a visitor does and sees, and what no visitor can do; Chromium, without a network."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import NEEDS, absent, marks, run_in_a_browser
from support.explorer_engine import COURSE, input_gradients
from support.explorer_patches import patch_at, patched, shares_of, values_in
from support.explorer_tokenizers import tokenizer_of
from tokenizers import AddedToken, Tokenizer

from minitransformer.data import BPETokenizer
from minitransformer.data.scenes import caption_tokenizer
from minitransformer.decoding import Describer, Generator, Translator, beam_search, open_checkpoint
from minitransformer.decoding.describer import start_of
from minitransformer.decoding.search import Start
from minitransformer.explorer import explore
from minitransformer.explorer.pictures import example_pictures
from minitransformer.explorer.storage import stored_as_int8
from minitransformer.inside import attention_maps
from minitransformer.models import GPT, Captioner, CaptionerConfig, GPTConfig, Transformer, TransformerConfig
from minitransformer.pretrained.tokenizers import PretrainedTokenizer
from minitransformer.system.visible import visible

HERE = Path(__file__).parent
SENTENCE = "The old teacher reads a book in the garden."
PROMPT = "the old teacher"
EDITED = "young"
FORCED = "Heute"
OTHER = SENTENCE.replace("teacher", "woman")

pytestmark = marks(NEEDS)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator, a language model, a vocabulary that is markup, and what the library says of them."""
    folder = tmp_path_factory.mktemp("pages")
    model, tokenizer, languages = open_checkpoint(COURSE)
    assert isinstance(model, Transformer)
    assert isinstance(tokenizer, BPETokenizer)
    explore(model, tokenizer, folder / "translator.html", name=COURSE.name, languages=languages)
    expected = {**translated(model, tokenizer), **continued(folder), **odd(folder), **pretrained(folder)}
    expected |= described(folder)
    (folder / "expected.json").write_text(json.dumps(expected), "utf-8")
    return folder


def translated(model: Transformer, tokenizer: BPETokenizer) -> dict[str, Any]:
    """The sentence's translation, by the library."""
    translator = Translator(model, tokenizer, threads=1)
    maps = translator.attention(SENTENCE)
    (source,) = translator.encode([SENTENCE], truncate=False)
    written = [*beam_search(model, np.array([source]), num_beams=4)[0][0].ids, model.config.eos_id]
    target = [model.config.bos_id, *written[:-1]]
    log_probs = log_probs_of(model, source, target)
    changed, _, _ = open_checkpoint(COURSE)
    assert isinstance(changed, Transformer)
    for name, parameter in changed.parameters.named.items():
        if name.startswith("decoder.layers.0.") and (".output." in name or ".contract." in name):
            parameter.value[...] = 0
    edited = " ".join([*SENTENCE.split()[:1], EDITED, *SENTENCE.split()[2:]])
    exact = open_checkpoint(COURSE, dtype="float64").model
    gradient, _ = input_gradients(exact, source, target, 1, written[1])
    searches = {str(penalty): translator.translate_n_best([SENTENCE], 1, 4, penalty)[0][0] for penalty in (0.6, 2.0)}
    layer = model.config.num_layers - 1
    return {
        "sentence": SENTENCE,
        "translation": searches["0.6"].text,
        "tokens": {"source": maps.source_tokens, "target": maps.target_tokens},
        "cross": {"layer": layer, "weights": maps.cross[layer].tolist()},
        "logProbs": log_probs[np.arange(len(written)), written].tolist(),
        "layers": model.config.num_layers,
        "scale": model.config.decoder.block.attention.d_k**-0.5,
        "beams": {name: {"text": found.text, "score": found.score} for name, found in searches.items()},
        "without_layer": {
            "text": Translator(changed, tokenizer, threads=1).translate([SENTENCE])[0],
            "original_log_prob": float(log_probs_of(changed, source, target)[np.arange(len(written)), written].sum()),
        },
        "forced": {"text": FORCED, "logProb": float(log_probs[0, tokenizer.encode(FORCED)[0]])},
        "edited": {"word": EDITED, "text": translator.translate([edited])[0]},
        "gradient": np.linalg.norm(gradient, axis=1).tolist(),
        "patching": patching(model, translator, source),
    }


def patching(model: Transformer, translator: Translator, source: list[int]) -> dict[str, Any]:
    """The parts of the other run that bring its first word over, and a translation with one of its vectors."""
    spot = patch_at("encoder", 1, 2)
    (other,) = translator.encode([OTHER], truncate=False)
    _, shares = shares_of(model, source, other)
    with patched(model, spot, values_in(model, spot, other, [1])):
        text, target = translator.translate([SENTENCE])[0], [model.config.bos_id]
        probabilities = np.exp(log_probs_of(model, source, target)[0])
    return {"other": OTHER, "shares": shares, "text": text, "best": float(probabilities.max())}


def log_probs_of(model: Transformer, source: list[int], target: list[int]) -> np.ndarray:
    """`(T, V)` log-probabilities of what follows each token of the target."""
    logits, _ = model.forward(np.array([source]), np.array([target]))
    return model.ops.log_softmax(logits)[0]


def continued(folder: Path) -> dict[str, Any]:
    """A small language model with random weights, and how it goes on."""
    tokenizer = BPETokenizer.train([PROMPT, SENTENCE.lower()] * 3, vocab_size=300)
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size, d_model=32, num_heads=4, num_layers=2, d_ff=64, max_length=64
    )  # fmt: skip
    model = GPT(config)
    explore(model, tokenizer, folder / "gpt.html", name="gpt", examples=[PROMPT])
    marked = GPT(replace(config, vocab_size=tokenizer.vocab_size + 4, bos_id=2, eos_id=2), seed=1)
    marked.parameters.named["tokens.table"].data[-4:] *= 30  # tokens without a text, which would be the most probable
    explore(marked, tokenizer, folder / "marked.html", name="marked", examples=[PROMPT])
    text = Generator(model, tokenizer).generate(PROMPT, max_tokens=40, beam=1)[0].strip()
    length = len(tokenizer.encode(PROMPT))
    others = (f"the old {word}" for word in SENTENCE.lower().split())
    other = next(each for each in others if each != PROMPT and len(tokenizer.encode(each)) == length)
    return {"prompt": PROMPT, "continuation": text, "otherPrompt": other}


def odd(folder: Path) -> dict[str, Any]:
    """A vocabulary whose tokens are markup."""
    text = "<b>x</b> </script><script>alert(1)</script> <img src=x onerror=alert(2)> &amp; %PAYLOAD% "
    tokenizer = BPETokenizer.train([text], vocab_size=320)
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size, d_model=16, num_heads=2, num_layers=1, d_ff=32, max_length=120,
        pad_id=0, bos_id=1, eos_id=2,
    )  # fmt: skip
    explore(Transformer(config), tokenizer, folder / "odd.html", name="<b>odd</b>", examples=[text, "</script>"])
    return {"odd": text}


def pretrained(folder: Path) -> dict[str, Any]:
    """A small Llama with another library's tokenizer, some tokens of which are markup or turn the text around."""
    inner = Tokenizer.from_str(tokenizer_of("Llama 3").inner.to_str())
    inner.add_tokens([AddedToken(each, normalized=False) for each in ("</script><b>", "\u202egnp\x1b[31m")])
    tokenizer = PretrainedTokenizer(inner, {}, {})
    config = GPTConfig.llama(
        tokenizer.vocab_size, d_model=32, num_heads=4, num_layers=2, d_ff=64, max_length=90, eos_id=0
    )
    model, prompt = GPT(config), "naïve 日 </script><b> \u202egnp\x1b[31m2024"
    model.parameters.named["output.table"].data[-2:] *= 40
    explore(model, tokenizer, folder / "pretrained.html", name="llama", examples=[prompt], int8=True)
    generator = Generator(stored_as_int8(model), tokenizer)
    start = generator.encode(prompt)
    begin = Start(first=np.array(start[-1:]), limits=np.array([40]))
    written = beam_search(generator.model, np.array([start[:-1]]), 1, 0.0, start=begin)[0][0].ids
    text = "\n".join(map(visible, tokenizer.decode(written).split("\n")))
    return {"pretrained": {"prompt": prompt, "reads": tokenizer.tokens(start), "text": text}}


def described(folder: Path) -> dict[str, Any]:
    """A small captioner with random weights, large in its cross-attention: it says of each picture something else."""
    tokenizer, rng = caption_tokenizer(), np.random.default_rng(1)
    config = CaptionerConfig(len(tokenizer), d_model=32, num_heads=4, d_ff=32, num_layers=2, max_length=16)
    model = Captioner(config)
    for name, parameter in model.parameters.named.items():
        parameter.value[...] = rng.standard_normal(parameter.value.shape) * (1 if "cross" in name else 0.3)
    explore(model, tokenizer, folder / "captioner.html", name="captioner")
    pictures = example_pictures(6)
    images = np.stack([each.pixels for each in pictures])
    texts = Describer(model, tokenizer).describe(list(images))
    best = beam_search(model, images[1:2], 4, 0.6, start=start_of(config, 1))[0][0]
    written = [*best.ids, *[config.eos_id] * best.ended]
    maps = attention_maps(model, images[1:2], np.array([[config.bos_id, *written[:-1]]]))
    cross = maps["decoder.layers.1.cross_attention"][0]  # (H, T, patches)
    return {
        "captioner": {
            "texts": texts,
            "true": [each.caption for each in pictures],
            "tokens": tokenizer.tokens(written),
            "cross": cross.tolist(),
        }
    }


@pytest.mark.parametrize("name", ["visitor", "hostile", "pictures"])
def test_in_a_browser(pages: Path, name: str) -> None:
    assert not absent(NEEDS)
    run_in_a_browser(HERE / "browser" / f"{name}.test.mjs", EXPLORER_PAGES=str(pages))
