"""The matcher: cosines of any number of pictures and texts, and the share of those that find their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from minitransformer.data.batching import BOS_ID, EOS_ID
from minitransformer.data.scenes import SceneDataset, caption_tokenizer
from minitransformer.decoding import Matcher, matcher
from minitransformer.evaluation import recall
from minitransformer.grammar.captions import caption
from minitransformer.grammar.scenes import draw
from minitransformer.models import CaptionerConfig, CLIPConfig, build_model

SHAPE: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1}
CONFIG = CLIPConfig(len(caption_tokenizer()), **SHAPE, embedding=8, max_length=24)


def test_similarities_are_those_of_the_vectors_however_many_go_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, scenes, path = build_model(CONFIG), SceneDataset("test", 5).scenes, tmp_path / "scene.png"
    pixels = (127.5 * (draw(scenes[0]) + 1)).round().astype(np.uint8)
    Image.fromarray(pixels.transpose(1, 2, 0)).save(path)
    pictures, texts = [path, *map(draw, scenes[1:])], [caption(scene) for scene in scenes[:3]]
    found = Matcher(model, caption_tokenizer()).similarities(pictures, texts)
    for row, picture in enumerate([pixels / np.float32(127.5) - 1, *pictures[1:]]):
        for column, text in enumerate(texts):
            ids = [[BOS_ID, *caption_tokenizer().encode(text), EOS_ID]]
            one = model.encode_pictures(picture[None])[0] @ model.encode_texts(ids)[0]
            assert found[row, column] == pytest.approx(one, abs=1e-5)
    monkeypatch.setattr(matcher, "AT_ONCE", 2)
    np.testing.assert_allclose(Matcher(model, caption_tokenizer()).similarities(pictures, texts), found, atol=1e-5)


def test_what_matches_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 'captioner', which matches no pictures with texts: a CLIP does"):
        Matcher(build_model(CaptionerConfig(len(caption_tokenizer()), **SHAPE)), caption_tokenizer())
    with pytest.raises(ValueError, match="ids has 32 tokens, more than the model's max_length of 24"):
        Matcher(build_model(CONFIG), caption_tokenizer()).texts(["red" + " red" * 29])
    with pytest.raises(TypeError, match="texts must be a sequence of texts, not one str"):
        Matcher(build_model(CONFIG), caption_tokenizer()).similarities([], "red")


def test_equal_texts_have_the_same_cosines_and_nothing_has_none() -> None:
    """Among others their vectors would be rounded otherwise."""
    scenes, own = SceneDataset("test", 9).scenes, Matcher(build_model(CONFIG), caption_tokenizer())
    texts = [caption(scenes[place]) for place in (0, 1, 2, 3, 1, 4, 5, 1, 6, 7, 8, 1)]
    equal = own.similarities([draw(scene) for scene in scenes], texts)[:, [1, 4, 7, 11]]
    assert (equal == equal[:, :1]).all()
    assert (own.texts(texts)[[1, 4, 7, 11]] == own.texts(texts)[1]).all()
    assert own.similarities([], texts).shape == (0, 12)
    assert (own.texts([]).shape, own.pictures([]).shape) == ((0, 8), (0, 8))


def test_a_row_is_found_if_few_columns_are_nearer_and_ties_count_in_part() -> None:
    similarities = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.7, 0.1, 0.9], [0.5] * 4, [0.9, 0.2, 0.9, 0.9]])
    np.testing.assert_allclose(recall(similarities), [1, 0, 1 / 4, 1 / 3])
    np.testing.assert_allclose(recall(similarities, 2), [1, 0, 1 / 2, 2 / 3])
    np.testing.assert_allclose(recall(similarities, 3), [1, 1, 3 / 4, 1])
    np.testing.assert_array_equal(recall(np.full((3, 3), np.nan), 3), np.zeros(3))  # a broken model finds nothing
    with pytest.raises(ValueError, match=r"similarities have shape \(3, 4\), expected \(N, N\)"):
        recall(similarities[:3])
