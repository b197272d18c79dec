"""Vectors of texts against `transformers`: the same hidden states, pooled as the files of sentence-transformers say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from support.cli_runs import in_this_process, refuse
from support.pretrained_cases import BERTS, exact, random_model, tr
from tokenizers import pre_tokenizers, processors

from minitransformer import Embedder
from minitransformer.decoding import Pooling
from minitransformer.pretrained import load, save

TEXTS = ["a b c", "d", "c a d b a c d a b c d", "", "B a", "c d b"]
MODULES = ("Transformer", "Pooling", "Normalize")
POOLED = {
    "mean": lambda hidden: hidden.mean(0),
    "cls": lambda hidden: hidden[0],
    "max": lambda hidden: hidden.max(0).values,
}
SWITCHES = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}


def folder_of(folder: Path, kind: str, seed: int) -> Any:
    """A random model's folder with a tokenizer of four words, and one that knows capitals; the model."""
    model = random_model(kind, seed)
    model.save_pretrained(folder)
    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    pad = model.config.pad_token_id or 0
    names[0], names[pad] = names[pad], names[0]
    ids = {word: number for number, word in enumerate([*names, *"abcdB"])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = [(name, ids[name]) for name in ("[CLS]", "[SEP]")]
    inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]".split(), special_tokens=marks)
    inner.save(str(folder / "tokenizer.json"))
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return model


def write_modules(folder: Path, pooling: dict[str, Any], *parts: str, **more: dict[str, Any]) -> None:
    """The files of sentence-transformers; `more` are others, without their ends."""
    paths = ["", *(f"{number}_{part}" for number, part in enumerate(parts) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{part}"}
        for number, (path, part) in enumerate(zip(paths, parts, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, values in more.items():
        (folder / f"{name}.json").write_text(json.dumps(values))


def theirs(folder: Path, texts: list[str], kind: str, normalized: bool, most: int) -> np.ndarray:
    """The vector of each text alone, without padding."""
    tokenizer, model = tr.AutoTokenizer.from_pretrained(folder), tr.AutoModel.from_pretrained(folder).eval()
    vectors = []
    with exact(model) as reference, torch.no_grad():
        for text in texts:
            given = tokenizer(text, truncation=True, max_length=most, return_tensors="pt", return_token_type_ids=False)
            vectors.append(POOLED[kind](reference(**given).last_hidden_state[0]))
    found = torch.stack(vectors)
    return (torch.nn.functional.normalize(found, dim=1) if normalized else found).numpy()


CASES = [
    pytest.param(kind, seed, marks=[] if seed < (3 if kind == "bert" else 1) else pytest.mark.slow)
    for kind in BERTS
    for seed in range(12)
]


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_vectors_are_those_of_transformers(kind: str, seed: int, tmp_path: Path) -> None:
    """Whatever head there is, in both forms of the pooling's file, and in batches with padding."""
    folder_of(tmp_path, kind, seed)
    way, normalized, most = ["mean", "cls", "max"][seed % 3], seed % 2 == 0, [None, 5][seed // 3 % 2]
    older = {f"pooling_mode_{name}": way == each for each, name in SWITCHES.items()}
    pooling = {"embedding_dimension": 1, "pooling_mode": way} if seed % 4 == 1 else older
    own = {"max_seq_length": most, "do_lower_case": False}
    write_modules(tmp_path, pooling, *MODULES[: 2 + normalized], sentence_bert_config=own)
    embedder = Embedder(*load(tmp_path, dtype="float64"))
    longest = most or embedder.model.config.max_length
    wanted = theirs(tmp_path, TEXTS, way, normalized, longest)
    for size in (2048, 8):
        assert np.abs(embedder.embed(TEXTS, batch_tokens=size) - wanted).max() <= 1e-9
    single = Embedder(*load(tmp_path)).embed(TEXTS).astype(np.float64)
    cosines = (single * wanted).sum(1) / np.linalg.norm(single, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() >= 0.999999


def test_a_folder_without_these_files_gives_the_mean_up_to_the_tokenizer_s_limit(tmp_path: Path) -> None:
    folder_of(tmp_path, "bert", 2)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 6}))
    embedder = Embedder(*load(tmp_path, dtype="float64"))
    assert np.abs(embedder.embed(TEXTS) - theirs(tmp_path, TEXTS, "mean", False, 6)).max() <= 1e-9
    assert embedder.embed([]).shape == (0, embedder.model.config.d_model)
    chosen = Embedder(embedder.model, embedder.tokenizer, Pooling("cls"))
    assert np.abs(chosen.embed(TEXTS[0]) - theirs(tmp_path, TEXTS[:1], "cls", False, 9)).max() <= 1e-9


def test_small_letters_and_a_prompt_stand_in_the_files(tmp_path: Path) -> None:
    folder_of(tmp_path, "distilbert", 2)
    general = {"prompts": {"query": "a b "}, "default_prompt_name": "query"}
    own = {"max_seq_length": 9, "do_lower_case": True}
    more = {"sentence_distilbert_config": own, "config_sentence_transformers": general}
    write_modules(tmp_path, {}, *MODULES[:2], **more)
    embedder = Embedder(*load(tmp_path, dtype="float64"))
    assert np.abs(embedder.embed(["B D "]) - theirs(tmp_path, ["a b b d"], "mean", False, 9)).max() <= 1e-9


def test_the_files_go_back_with_their_model(tmp_path: Path) -> None:
    folder_of(tmp_path / "in", "bert", 2)
    write_modules(tmp_path / "in", {"pooling_mode_cls_token": True}, *MODULES, sentence_bert_config={})
    save(*load(tmp_path / "in")[:1], tmp_path / "out")
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        assert json.loads((tmp_path / "out" / name).read_text()) == json.loads((tmp_path / "in" / name).read_text())
    other = load(tmp_path / "in")[0]
    other.origin = None
    save(other, tmp_path / "out")
    assert not (tmp_path / "out" / "modules.json").exists()


DAMAGED = "the files of sentence-transformers are damaged or not all there: "
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], dict[str, Any], str]] = {
    "a dense part": (
        {},
        ("Transformer", "Pooling", "Dense"),
        {},
        "vectors made by Transformer, Pooling, Dense are not",
    ),
    "no pooling": ({}, ("Transformer",), {}, "vectors made by Transformer are not supported, only by"),
    "the last token": ({"pooling_mode_lasttoken": True}, MODULES, {}, "pooling by pooling_mode_lasttoken is not"),
    "two poolings": (
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        MODULES,
        {},
        "pooling by cls and mean is not supported, only by one of mean, cls, max",
    ),
    "a newer pooling": ({"pooling_mode": ["cls", "max"]}, MODULES, {}, "pooling by ['cls', 'max'] is not supported"),
    "too short": ({}, MODULES, {"sentence_bert_config": {"max_seq_length": 2}}, "max_tokens is 2, expected 3 or more"),
    "a length in words": (
        {},
        MODULES,
        {"sentence_bert_config": {"max_seq_length": "long"}},
        f"{DAMAGED}max_tokens must be an integer",
    ),
    "no such prompt": (
        {},
        MODULES,
        {"config_sentence_transformers": {"default_prompt_name": "a"}},
        f"{DAMAGED}'prompts'",
    ),
    "a prompt left out": (
        {"include_prompt": False},
        MODULES,
        {"config_sentence_transformers": {"default_prompt_name": "a", "prompts": {"a": "b"}}},
        "pooling without the tokens of a prompt",
    ),
    "no object": ({}, MODULES, {"modules": {"type": 3}}, DAMAGED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_ways_to_make_a_vector_are_refused_by_their_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path, "bert", 2)
    pooling, parts, more, message = REFUSED[name]
    write_modules(tmp_path, pooling, *parts, **more)
    refuse(in_this_process(capsys), "embed", tmp_path, "a", says=f"{tmp_path}: {message}")


def test_a_pooling_that_is_not_there_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_of(tmp_path, "bert", 2)
    write_modules(tmp_path, {}, *MODULES)
    path = tmp_path / "1_Pooling" / "config.json"
    path.write_text("{")
    refuse(in_this_process(capsys), "embed", tmp_path, "a", says=f"{path} is not valid JSON")
    path.unlink()
    refuse(in_this_process(capsys), "embed", tmp_path, "a", says=f"{DAMAGED}'1_Pooling/config.json'")


def test_the_commands_print_and_compare_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_of(tmp_path, "bert", 2)
    run, embedder = in_this_process(capsys), Embedder(*load(tmp_path))
    texts = [text for text in TEXTS if text]
    vectors = embedder.embed(texts)
    lines = run("embed", tmp_path, *texts)[1].splitlines()
    np.testing.assert_array_equal(np.array([line.split("\t") for line in lines], np.float32), vectors)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(texts) + "\n")
    assert run("embed", tmp_path, "--file", file)[1].splitlines() == lines
    said = f"{tmp_path / 'vectors.npy'}: {len(texts):,} vectors of 8 numbers\n"
    assert run("embed", tmp_path, "--file", file, "--out", tmp_path / "vectors.npy")[:2] == (0, said)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), vectors)
    (tmp_path / "empty.txt").write_text("")
    kept = tmp_path.with_suffix(".npy")  # not in the model's folder
    kept.write_bytes(b"kept")
    for name, says in (("empty.txt", "empty.txt holds no line"), ("none.txt", "none.txt")):
        status, _, error = run("embed", tmp_path, "--file", tmp_path / name, "--out", kept)
        assert (status, says in error) == (2, True)
        status, _, error = run("similar", tmp_path, "a text", "--file", tmp_path / name)
        assert (status, says in error) == (2, True)
    assert kept.read_bytes() == b"kept"
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    found = [line.split("\t") for line in run("similar", tmp_path, *texts[:3])[1].splitlines()]
    assert len(found) == 3
    assert sorted(found, key=lambda each: -float(each[0])) == found
    for cosine, one, other in found:
        assert float(cosine) == pytest.approx(cosines[texts.index(one), texts.index(other)], abs=1e-4)
    out = run("similar", tmp_path, texts[2], texts[0], "--file", file, "--count", "2")[1]
    for text, block in zip((texts[2], texts[0]), out.split("\n\n"), strict=True):
        best, second = (line.split("\t") for line in block.splitlines())
        assert best == ["1.0000", str(1 + texts.index(text)), text]
        assert float(second[0]) == pytest.approx(np.sort(cosines[texts.index(text)])[-2], abs=1e-4)


def test_a_blank_line_keeps_its_place_among_vectors_and_is_near_to_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path, "bert", 2)
    run, file = in_this_process(capsys), tmp_path / "lines.txt"
    one, other = [text for text in TEXTS if text][:2]
    file.write_text(f"{one}\n\n  \n{other}\n")
    vectors = [line.split("\t") for line in run("embed", tmp_path, "--file", file)[1].splitlines()]
    expected = Embedder(*load(tmp_path)).embed([one, "", "  ", other])
    np.testing.assert_array_equal(np.array(vectors, np.float32), expected)
    nearest = run("similar", tmp_path, "", "--file", file)[1].splitlines()
    assert sorted(line.split("\t")[1:] for line in nearest) == [["1", one], ["4", other]]
    file.write_text("\n \n")
    status, _, error = run("similar", tmp_path, one, "--file", file)
    assert (status, "lines.txt holds no line" in error) == (2, True)
