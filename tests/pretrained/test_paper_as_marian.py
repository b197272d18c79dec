"""Models of this library run in `transformers`: the paper's Transformer as a Marian, T5 without a factor of scores."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from support.pretrained_cases import exact

from minitransformer.decoding import Translator, beam_search
from minitransformer.grammar.generation import sample
from minitransformer.models import T5Config, Transformer, TransformerConfig
from minitransformer.pretrained import load, save

SLOW = pytest.mark.slow
WEIGHTS = Path(__file__).parents[2] / "lessons" / "weights" / "en-de.safetensors"


@pytest.mark.parametrize("theirs", [transformers.MarianMTModel, transformers.T5ForConditionalGeneration])
@pytest.mark.parametrize("seed", range(3))
def test_same_logits(seed: int, theirs: Any, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "d_model": 8 + 4 * seed,
        "num_heads": 2,
        "d_ff": 7,
        "num_layers": 2,
        "num_decoder_layers": 1,
    }
    if theirs is transformers.MarianMTModel:
        config = TransformerConfig(29, **sizes)
    else:
        config = T5Config(29, **sizes, d_k=6, scaled_scores=True, scale_output=False, bos_id=1, eos_id=2)
    model = Transformer(config, dtype="float64", seed=seed)
    generator = np.random.default_rng(seed)
    model.parameters.data += generator.normal(size=model.parameters.data.shape) * 0.2
    source, target = generator.integers(3, 29, (3, 6)), generator.integers(3, 29, (3, 5))
    source[0, 4:] = config.pad_id
    target[:, 0] = config.bos_id
    wanted, _ = model.forward(source, target)
    save(model, tmp_path)
    there = theirs.from_pretrained(tmp_path, dtype=torch.float64).eval()
    mask = source != config.pad_id
    with exact(there), torch.no_grad():
        tensors = [torch.from_numpy(each) for each in (source, mask, target)]
        logits = there(input_ids=tensors[0], attention_mask=tensors[1], decoder_input_ids=tensors[2]).logits
    assert np.abs(logits.numpy() - wanted).max() <= 1e-9 * max(1, np.abs(wanted).max())
    here, _ = load(tmp_path, dtype="float64")
    logits, _ = here.forward(source, target, source_mask=mask)
    assert np.abs(logits - wanted).max() <= 1e-9 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize(
    ("count", "beam"), [(5, 1), (5, 4), pytest.param(1000, 1, marks=SLOW), pytest.param(20, 4, marks=SLOW)]
)
def test_the_courses_model_translates_the_same(count: int, beam: int, tmp_path: Path) -> None:
    """There, and here once it is loaded as a Marian, whose channels have changed places."""
    translator = Translator.from_checkpoint(WEIGHTS)
    tokenizer, config = translator.tokenizer, translator.model.config
    sentences = [example.english for example in islice(sample("test", seed=5), count)]
    wanted = translator.translate(sentences, beam=beam, length_penalty=0.0)
    save(translator.model, tmp_path, tokenizer)
    there: Any = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    here, _ = load(tmp_path)
    found: dict[str, list[str]] = {"there": [], "here": []}
    for start in range(0, count, 100):
        sources = [[*tokenizer.encode(text), config.eos_id] for text in sentences[start : start + 100]]
        longest = max(map(len, sources))
        ids = torch.tensor([source + [config.pad_id] * (longest - len(source)) for source in sources])
        options = {"num_beams": beam, "do_sample": False, "length_penalty": 0.0}
        with torch.no_grad():
            outputs = there.generate(ids, attention_mask=ids != config.pad_id, **options, max_new_tokens=100)
        found["there"] += [tokenizer.decode(output) for output in outputs.tolist()]
        found["here"] += [tokenizer.decode(best.ids) for (best,) in beam_search(here, ids.numpy(), beam, 0.0)]
    assert found == {"there": wanted, "here": wanted}


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=SLOW)])
def test_the_courses_model_translates_the_same_in_ctranslate2(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: pip install ctranslate2")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import engine_jobs

    translator = Translator.from_checkpoint(WEIGHTS)
    sentences = [example.english for example in islice(sample("test", seed=5), count)]
    there = engine_jobs.engine(translator, engine_jobs.convert(translator, tmp_path), workers=1, threads=1)
    assert there(sentences, beam=1) == translator.translate(sentences, beam=1)
