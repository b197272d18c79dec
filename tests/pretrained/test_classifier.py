"""Classes of pictures and of texts, and words for gaps, as the pipelines of `transformers` say them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from PIL import Image
from support.cli_runs import in_this_process, refuse
from support.pretrained_cases import random_model, tr
from tokenizers import decoders, pre_tokenizers, processors
from transformers.image_utils import load_image
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from minitransformer import Classifier
from minitransformer.decoding.images import processor_of
from minitransformer.pretrained import load

PROCESSORS: dict[str, Any] = {"vit": ViTImageProcessorPil, "deit": DeiTImageProcessorPil}


def picture_of(mode: str, width: int, height: int, seed: int) -> Image.Image:
    """Noise over a slope, in one of Pillow's modes."""
    rng = np.random.default_rng(seed)
    slope = np.linspace(0, 200, width)[None, :, None] * np.linspace(0, 1, height)[:, None, None]
    pixels = (slope + rng.integers(0, 56, (height, width, 4))).astype(np.uint8)
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16))
    return Image.fromarray(pixels).convert("RGB" if mode in ("P", "1", "CMYK") else mode).convert(mode)


def options_of(kind: str, seed: int) -> dict[str, Any]:
    """Random options of an image processor."""
    draw = random.Random(f"{kind} {seed}")
    size: Any = draw.choice([{"height": 12, "width": 12}, {"height": 9, "width": 15}, {"shortest_edge": 10}, 14])
    values = {"do_resize": draw.random() < 0.8, "size": size, "resample": draw.choice([0, 1, 2, 3, 4, 5])}
    values |= {"do_center_crop": draw.random() < 0.5, "crop_size": draw.choice([8, {"height": 7, "width": 20}])}
    values |= {"do_rescale": draw.random() < 0.8, "rescale_factor": draw.choice([1 / 255, 1 / 127.5])}
    values |= {"do_normalize": draw.random() < 0.8, "image_mean": [0.485, 0.456, 0.406]}
    return values | {"image_std": draw.choice([[0.229, 0.224, 0.225], [0.5, 0.5, 0.25]])}


SHAPES = [(12, 12), (31, 17), (17, 31), (5, 40), (3, 2), (1, 1), (64, 65)]
MODES = ["RGB", "L", "RGBA", "P", "1", "LA", "CMYK", "I;16"]


def with_options(kind: str, options: dict[str, Any], folder: Path, **more: Any) -> Any:
    """A model of this kind with three channels in a folder; the image processor of `transformers` beside it."""
    models = (random_model(kind, seed) for seed in range(99))
    next(model for model in models if model.config.num_channels == 3).save_pretrained(folder)
    PROCESSORS[kind](**options).save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return PROCESSORS[kind].from_pretrained(folder)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", PROCESSORS)
def test_pixels_are_those_of_transformers(kind: str, seed: int, tmp_path: Path) -> None:
    """Bit for bit, for pictures of all shapes and modes; seed 0 has no options at all."""
    theirs = with_options(kind, options_of(kind, seed) if seed else {}, tmp_path)
    ours = processor_of(load(tmp_path)[0])
    for number, (width, height) in enumerate(SHAPES):
        picture = picture_of(MODES[(seed + number) % len(MODES)], width, height, number)
        np.testing.assert_array_equal(ours(picture), theirs(load_image(picture)).pixel_values[0])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_turned_as_its_camera_says(orientation: int, tmp_path: Path) -> None:
    theirs = with_options("vit", {"size": {"height": 6, "width": 9}}, tmp_path)
    exif, path = Image.Exif(), tmp_path / "photo.jpg"
    exif[0x0112] = orientation
    picture_of("RGB", 40, 23, 0).save(path, exif=exif)
    pixels = processor_of(load(tmp_path)[0]).read(path)
    np.testing.assert_array_equal(pixels, theirs(load_image(str(path))).pixel_values[0])


OLDER = {"feature_extractor_type": "ViTFeatureExtractor", "size": 10, "resample": 2, "do_resize": True}
OLDER |= {"do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7]}


def test_files_of_older_versions_say_less(tmp_path: Path) -> None:
    with_options("vit", {}, tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(OLDER))
    theirs, picture = ViTImageProcessorPil.from_pretrained(tmp_path), picture_of("RGB", 31, 17, 0)
    np.testing.assert_array_equal(processor_of(load(tmp_path)[0])(picture), theirs(picture).pixel_values[0])


@pytest.mark.parametrize("kind", PROCESSORS)
def test_classes_of_photographs_have_their_names(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = random_model(kind, 1)
    names = ["cat", "dog\x1b", "fox", "owl", "emu", "elk", "ape"]
    model.config.id2label = dict(enumerate(names[: model.config.num_labels]))
    model.save_pretrained(tmp_path / "model")
    channels, side = model.config.num_channels, model.config.image_size
    sizes = {"size": {"height": side, "width": side}, "do_center_crop": False}
    theirs = PROCESSORS[kind](**sizes, image_mean=[0.4] * channels, image_std=[0.2] * channels)
    theirs.save_pretrained(tmp_path / "model")
    paths = [tmp_path / f"{number}.png" for number in range(10)]
    for number, path in enumerate(paths):
        picture_of("RGB", 20 + 3 * number, 30 - number, number).save(path)
    pictures = [Image.open(path).convert("RGB" if channels == 3 else "L") for path in paths]
    with torch.no_grad():
        logits = model(torch.tensor(np.stack([theirs(picture).pixel_values[0] for picture in pictures]))).logits
    wanted = logits.double().softmax(1).topk(2)
    ours = Classifier(*load(tmp_path / "model")).classify(paths, count=2)
    for guesses, values, places in zip(ours, wanted.values.tolist(), wanted.indices.tolist(), strict=True):
        assert [guess.text for guess in guesses] == [names[place] for place in places]
        assert [guess.probability for guess in guesses] == pytest.approx(values, rel=1e-4)
    out = in_this_process(capsys)("classify", tmp_path / "model", *paths, "--count", "2")[1]
    said = [
        f"{path}\t{guess.text}\t{guess.probability:.4f}".replace("\x1b", "\\x1b")
        for path, guesses in zip(paths, ours, strict=True)
        for guess in guesses
    ]
    assert out.splitlines() == said


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another class": ({"image_processor_type": "ConvNextImageProcessor"}, "image processor ConvNextImageProcessor is"),
    "padding": ({"do_pad": True}, "that pads (do_pad) is not supported"),
    "no way to resize": ({"resample": 9}, "resample is 9, expected a number of Pillow's from 0 to 5"),
    "the longer side": ({"size": {"longest_edge": 3}}, "size {'longest_edge': 3} is not supported, only a height"),
    "a huge size": ({"size": 10**9}, "size 1000000000 is not supported"),
    "half a size": ({"size": [3, 2.5]}, "size [3, 2.5] is not supported"),
    "two means": ({"image_mean": [0.5, 0.5]}, "image_mean [0.5, 0.5] is not supported, only 3 finite numbers"),
    "no deviation": ({"image_std": [0.5, 0, 0.5]}, "image_std [0.5, 0, 0.5] is not supported"),
    "a word": ({"rescale_factor": "1/255"}, "rescale_factor '1/255' is not supported"),
    "a list for a name": ({"image_processor_type": ["ViT"]}, "preprocessor_config.json is damaged"),
    "another size": ({"size": {"height": 4, "width": 5}}, "becomes 4 × 5 pixels, but the model takes"),
    "a ribbon": ({"size": {"shortest_edge": 10_000}}, "at most 10,000 are supported"),
}


@pytest.mark.parametrize("name", BAD)
def test_other_options_are_refused_by_their_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed, message = BAD[name]
    with_options("vit", {}, tmp_path, **changed)
    picture_of("RGB", 40, 23, 0).save(tmp_path / "a.png")
    refuse(in_this_process(capsys), "classify", tmp_path, tmp_path / "a.png", says=message)


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "text": lambda data: b"no picture\n",
    "a wrong checksum": lambda data: data[:29] + b"....." + data[34:],
    "a changed byte": lambda data: data[:60] + bytes([data[60] ^ 255]) + data[61:],
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_damaged_picture_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_options("vit", {}, tmp_path)
    picture_of("RGB", 40, 23, 0).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes(SPOILT[name]((tmp_path / "a.png").read_bytes()))
    refuse(in_this_process(capsys), "classify", tmp_path, tmp_path / "a.png", says="a.png is not an image that can be")


# --- Texts ----------------------------------------------------------------------------------------------------

TEXTS = ["the dog", "a cat sees the old dog", "trees", "near near the"]


def with_words(folder: Path, kind: str, seed: int, **options: Any) -> None:
    """A random model's folder with a tokenizer of a few words, which are written in a RoBERTa's way or in BERT's."""
    model, roberta = random_model(kind, seed), kind == "roberta"
    names = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"] if roberta else ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    pad, start, end, unknown, mask = names
    place = model.config.pad_token_id or 0
    names[0], names[place] = names[place], names[0]
    others = [f"w{number}" for number in range(model.config.vocab_size - 11)]
    words = ["the", "dog", "sees", "a", "cat", "near", *others]
    ids = {name: number for number, name in enumerate([*names, *("Ġ" * roberta + word for word in words)])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=unknown))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel() if roberta else pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.ByteLevel() if roberta else decoders.WordPiece()
    marks = [(name, ids[name]) for name in (start, end)]
    inner.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}".split(), special_tokens=marks)
    inner.add_special_tokens([*names[:4], tokenizers.AddedToken(mask, special=True, lstrip=roberta)])
    assert model.config.vocab_size == len(ids)
    model.config.update(options | {"id2label": {i: f"class {i}" for i in range(model.config.num_labels)}})
    model.save_pretrained(folder)
    named = {"pad_token": pad, "mask_token": mask, "unk_token": unknown, "model_max_length": 9}
    tr.PreTrainedTokenizerFast(tokenizer_object=inner, **named).save_pretrained(folder)


def pipeline(task: str, folder: Path) -> Any:
    tokenizer = tr.AutoTokenizer.from_pretrained(folder, model_input_names=["input_ids", "attention_mask"])
    return tr.pipeline(task, model=str(folder), tokenizer=tokenizer)


@pytest.mark.parametrize("options", [{}, {"problem_type": "multi_label_classification"}])
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_classes_of_texts_are_those_of_their_pipeline(
    kind: str, options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_words(tmp_path, kind, 1, **options)
    ours = Classifier(*load(tmp_path)).classify(TEXTS, count=2)
    for guesses, wanted in zip(ours, pipeline("text-classification", tmp_path)(TEXTS, top_k=2), strict=True):
        assert [guess.text for guess in guesses] == [each["label"] for each in wanted]
        assert [guess.probability for guess in guesses] == pytest.approx([each["score"] for each in wanted], rel=1e-4)
    out = in_this_process(capsys)("classify", tmp_path, *TEXTS)[1]
    assert [line.split("\t")[1] for line in out.splitlines()] == [guesses[0].text for guesses in ours]


def test_a_model_that_gives_a_number_gives_no_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_words(tmp_path, "bert", 1, problem_type="regression")
    refuse(in_this_process(capsys), "classify", tmp_path, "a", says="outputs are numbers (problem_type regression)")


@pytest.mark.parametrize("seed", [0, 5, 10])
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_words_for_a_gap_are_those_of_their_pipeline(
    kind: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A RoBERTa calls its gap <mask>, and [MASK] is the same."""
    with_words(tmp_path, kind, seed)
    there = pipeline("fill-mask", tmp_path)
    wanted = there(f"the dog {there.tokenizer.mask_token} a", top_k=4)
    for gap in dict.fromkeys((there.tokenizer.mask_token, "[MASK]")):
        out = in_this_process(capsys)("fill", tmp_path, f"the dog {gap} a", "--count", "4")[1]
        guesses = [line.split("\t") for line in out.splitlines()]
        assert [float(guess) for _, guess in guesses] == pytest.approx([each["score"] for each in wanted], abs=1e-4)
        words = [(each["token_str"].strip(), text) for each, (text, _) in zip(wanted, guesses, strict=True)]
        assert [text for word, text in words if word] == [word for word, _ in words if word]
    refuse(in_this_process(capsys), "fill", tmp_path, "the dog", says=f"there is no {there.tokenizer.mask_token} in")
