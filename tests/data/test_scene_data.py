"""Scenes as training data: whole words, fresh pictures in every epoch, a validation that stays."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from minitransformer.data.batching import BOS_ID, EOS_ID, PAD_ID
from minitransformer.data.scenes import SceneDataset, caption_tokenizer, scenes
from minitransformer.grammar.captions import LANGUAGES, caption
from minitransformer.grammar.scenes import HELD_OUT, draw
from minitransformer.models import IGNORED, CLIPConfig

SIZES = {"pad_id": PAD_ID, "bos_id": BOS_ID, "eos_id": EOS_ID, "vocab_size": len(caption_tokenizer())}
CONFIG = SimpleNamespace(channels=3, image_size=32, num_patches=64, model=SimpleNamespace(compares_rows=False), **SIZES)
TRAIN = SceneDataset("train", 12)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_word_of_a_caption_is_one_token(language):
    tokenizer, dataset = caption_tokenizer(language), SceneDataset("train", 200)
    for scene in dataset.scenes:
        text = caption(scene, language)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert len(ids) == len(text.replace(",", " ,").replace(".", " .").split())


def test_a_batch_holds_the_pictures_and_captions_of_its_scenes():
    scenes, tokenizer = TRAIN.scenes[:3], caption_tokenizer()
    (batch,) = [next(TRAIN.batches(3 * 64 + 63, None, CONFIG).epoch(0))]
    images, target_in, target_out = batch.inputs
    np.testing.assert_array_equal(images, np.stack([draw(scene) for scene in scenes]))
    for scene, before, after in zip(scenes, target_in, target_out, strict=True):
        ids = tokenizer.encode(caption(scene))
        padding = len(before) - len(ids) - 1
        assert before.tolist() == [BOS_ID, *ids, *[PAD_ID] * padding]
        assert after.tolist() == [*ids, EOS_ID, *[IGNORED] * padding]
    assert batch.num_targets == (target_out != IGNORED).sum()


def test_a_clip_reads_whole_captions_and_a_pair_is_one_target():
    config = CLIPConfig(len(caption_tokenizer()))
    captioned, matched = (next(TRAIN.batches(5 * 64, 0, each).epoch(1)) for each in (CONFIG, config))
    pictures, ids = matched.inputs
    np.testing.assert_array_equal(pictures, captioned.inputs[0])
    np.testing.assert_array_equal(ids[:, 0], np.full(5, BOS_ID))
    np.testing.assert_array_equal(ids[:, 1:], np.where(captioned.targets == IGNORED, PAD_ID, captioned.targets))
    assert matched.num_targets == matched.num_sentences == 5
    with pytest.raises(ValueError, match="tokens_per_batch is 127, expected 128 or more: a CLIP compares the pairs"):
        TRAIN.batches(127, 0, config)


def test_no_scene_comes_twice_and_those_that_validate_do_not_change():
    batches = TRAIN.batches(64, 0, CONFIG)
    seen = [image.tobytes() for epoch in range(4) for batch in batches.epoch(epoch) for image in batch.inputs[0]]
    assert len(set(seen)) == len(seen) == 48
    train, valid = scenes(7)
    assert (train.split, train.seed, valid.split, valid.seed) == ("train", 7, "valid", 0)
    assert valid == scenes(8)[1]
    assert train.scene(0) != scenes(8)[0].scene(0)
    assert all(HELD_OUT.isdisjoint(scene.pairs) for scene in TRAIN.scenes)


def test_other_scenes_have_another_checksum():
    changes = [{"split": "test"}, {"seed": 1}, {"language": "german"}, {"held_out": frozenset()}]
    checksums = [each.checksum() for each in (TRAIN, *(replace(TRAIN, **change) for change in changes))]
    assert len(set(checksums)) == 5
    assert SceneDataset("train", 12).checksum() == checksums[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 16}, r"the pictures have shape \(3, 32, 32\), but the model takes \(3, 16, 16\)"),
        ({"vocab_size": 9}, "the captions have [0-9]+ tokens, but the model knows 9"),
        ({"bos_id": 2}, "pad_id, bos_id, eos_id are 0, 2, 2 in the model"),
    ],
)
def test_a_model_of_other_pictures_or_tokens_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TRAIN.batches(64, 0, SimpleNamespace(**vars(CONFIG) | changes))


def test_different_scenes_are_the_first_of_their_captions():
    every = SceneDataset("test", 400)
    first = {caption(scene): scene for scene in reversed(every.scenes)}
    found = every.different()
    assert len(found) < 400
    assert found == first
    assert [*found] == [*dict.fromkeys(map(caption, every.scenes))]
    assert [*SceneDataset("test", 1).different(300)] == [*found][:300]
