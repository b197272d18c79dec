"""Folders from before `tokenizer.json`, and Marian's: their tokenizers give the ids and texts of `transformers`'."""

import io
import json
import random
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2
from support.pretrained_cases import random_model, tr

from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.decoding import Filler, Generator
from minitransformer.grammar.generation import sample
from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained import PretrainedError, load, save
from minitransformer.pretrained.tokenizers import BYTE_OF, load_tokenizer

PIECES = "the Dog barks a é ß 日本 😀 \u0301 ² ﬁ 7 don't . ▁ \x07 \u200b <s> </s> <unk> <pad> [MASK] [SEP]".split()
PIECES += ["<extra_id_3>", "<go>", "<br>", "Q7", "<|endoftext|>", ">>de<<", " ", "  ", "\n", "\t"]


def texts() -> list[str]:
    """Random mixtures of words, odd characters, spaces and special tokens; and sentences."""
    draw = random.Random(0)
    mixed = [
        "".join(draw.choices([*PIECES, chr(draw.randrange(32, 0x3000))], k=draw.randrange(12))) for _ in range(300)
    ]
    return mixed + [example.english for example in islice(sample("test", seed=5), 50)] + [">>de<< Go!", ">>xx<<Go", ""]


def train_pieces(path: Path, lines: list[str], **options: Any) -> sentencepiece.SentencePieceProcessor:
    """A model of sentencepiece's, written to a file."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(  # pyright: ignore[reportAttributeAccessIssue]
        sentence_iterator=iter(lines), model_writer=file, minloglevel=2, hard_vocab_limit=False, **options
    )
    path.write_bytes(file.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind, with small vocabularies that are trained on the grammar's sentences."""
    top = tmp_path_factory.mktemp("vocabularies")
    for kind in ("gpt2", "bert", "t5", "llama", "marian"):
        (top / kind).mkdir()
    examples = list(islice(sample("train", seed=1), 1000))
    lines = [example.english for example in examples] + ["naïve Café, x² ½"] * 20
    quiet = {"show_progress": False}
    pairs = tokenizers.ByteLevelBPETokenizer()
    pairs.train_from_iterator(lines, vocab_size=400, special_tokens=["<|endoftext|>"], **quiet)
    pairs.save_model(str(top / "gpt2"))
    words = tokenizers.BertWordPieceTokenizer()
    words.train_from_iterator(lines, vocab_size=400, **quiet)
    words.save_model(str(top / "bert"))
    fixed: dict[str, Any] = {"control_symbols": ["<go>"], "user_defined_symbols": ["<br>", "Q7"]}
    train_pieces(top / "t5" / "spiece.model", lines, **fixed, vocab_size=400, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    identity: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    bytes_: dict[str, Any] = {"model_type": "bpe", "byte_fallback": True, "character_coverage": 0.999}
    train_pieces(top / "llama" / "tokenizer.model", lines, **fixed, vocab_size=600, **identity, **bytes_)
    both = (
        train_pieces(top / "marian" / "source.spm", lines, vocab_size=300),
        train_pieces(top / "marian" / "target.spm", [example.german for example in examples], vocab_size=300),
    )
    pieces = sorted({each.id_to_piece(index) for each in both for index in range(3, each.get_piece_size())})
    known = ["</s>", "<unk>", *(piece for number, piece in enumerate(pieces) if number % 17), ">>de<<", "<pad>"]
    (top / "marian" / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(known)}))
    return top


def copied(folder: Path, to: Path, **options: Any) -> Path:
    """A copy of a folder, with a `tokenizer_config.json` if there are options."""
    to.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    if options:
        (to / "tokenizer_config.json").write_text(json.dumps(options))
    return to


STRIPPED = {"content": "[MASK]", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}
ADDED = {
    "content": "barks",
    "lstrip": False,
    "rstrip": False,
    "single_word": True,
    "normalized": False,
    "special": False,
}
CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("gpt2", tr.GPT2Tokenizer, {}),
    ("gpt2", tr.GPT2Tokenizer, {"add_prefix_space": True, "pad_token": "<pad>", "add_bos_token": True}),
    ("bert", tr.BertTokenizer, {}),
    ("bert", tr.BertTokenizer, {"do_lower_case": False, "mask_token": {"__type": "AddedToken", **STRIPPED}}),
    ("bert", tr.BertTokenizer, {"strip_accents": False, "tokenize_chinese_chars": False}),
    (
        "bert",
        tr.BertTokenizer,
        {"added_tokens_decoder": {"400": ADDED, "4": {**STRIPPED, "special": True}}, "extra_special_tokens": ["ß"]},
    ),
    ("t5", tr.T5Tokenizer, {}),
    ("t5", tr.T5Tokenizer, {"extra_ids": 4}),
    ("llama", tr.LlamaTokenizer, {}),
    ("llama", tr.LlamaTokenizer, {"legacy": True, "add_bos_token": True}),
    ("llama", tr.LlamaTokenizer, {"add_prefix_space": False, "add_eos_token": True}),
    ("marian", tr.MarianTokenizer, {}),
    ("marian", tr.MarianTokenizer, {"source_lang": "en", "target_lang": "de"}),
]


@pytest.mark.filterwarnings("ignore:Recommended")
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "theirs", "options"), CASES)
def test_the_same_ids_and_texts(
    kind: str, theirs: Any, options: dict[str, Any], every: int, folders: Path, tmp_path: Path
) -> None:
    folder = copied(folders / kind, tmp_path / "there", **options)
    random_model(kind, 0).save_pretrained(folder)
    there = theirs.from_pretrained(folder)
    model, here = load(folder)
    save(model, tmp_path / "back", here)
    _, again = load(tmp_path / "back")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert here is not None
    assert again is not None
    assert here.vocab_size == again.vocab_size == len(there)
    draw = random.Random(1)
    for text in texts()[::every]:
        for marks in (False, True):
            wanted = there(text, add_special_tokens=marks)["input_ids"]
            assert here.encode(text, special_tokens=marks) == wanted, text
            assert again.encode(text, special_tokens=marks) == wanted, text
        assert back(text, add_special_tokens=False)["input_ids"] == there(text, add_special_tokens=False)["input_ids"]
        for ids in (wanted, draw.choices(range(here.vocab_size), k=draw.randrange(9))):
            assert here.decode(ids) == there.decode(ids, skip_special_tokens=True)


def test_a_distilberts_tokenizer_is_a_berts(folders: Path, tmp_path: Path) -> None:
    folder = copied(folders / "bert", tmp_path / "there", tokenizer_class="DistilBertTokenizer")
    for kind in ("bert", "distilbert"):
        assert (
            load_tokenizer(folder, kind, {}).encode("A dog barks.")
            == tr.BertTokenizer.from_pretrained(folder)("A dog barks.", add_special_tokens=False)["input_ids"]
        )


@pytest.mark.parametrize(("kind", "name"), [("t5", "spiece.model"), ("llama", "tokenizer.model")])
def test_the_pieces_are_sentencepieces_own(kind: str, name: str, folders: Path) -> None:
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folders / kind / name))
    tokenizer = load_tokenizer(folders / kind, kind, {})
    count = 0
    for text in texts():
        cut = text[:1] in ("", " ", "▁") or "<" in text or "Q7" in text  # where transformers goes a way of its own
        if not cut:
            assert tokenizer.encode(text) == pieces.encode(text), text
            count += 1
    assert count > 80


@pytest.mark.parametrize("options", [{}, {"legacy": True}, {"add_prefix_space": False}])
def test_an_older_llamas_file_is_read_as_transformers_reads_it(
    options: dict[str, Any], folders: Path, tmp_path: Path
) -> None:
    """It writes the spaces by two steps of a normaliser, also after a mark within a text."""
    named = {"tokenizer_class": "LlamaTokenizer", **options}
    tr.LlamaTokenizer.from_pretrained(folders / "llama").save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text()) | {"pre_tokenizer": None}
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    path.write_text(json.dumps(values | {"normalizer": {"type": "Sequence", "normalizers": steps}}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    theirs, here = tr.LlamaTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path, "llama", {})
    for text in ("the dog", " the cat", "<s>the dog", "the </s> cat", "  two  spaces", ""):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert here.encode(text) == ids, text
        assert here.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def edit(path: Path, part: str, **values: Any) -> None:
    """Writes other values into a part of sentencepiece's file; without any it turns the pieces' scores round."""
    proto: Any = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    proto.ParseFromString(path.read_bytes())
    for name, value in values.items():
        setattr(getattr(proto, part), name, value)
    scored = [piece for piece in proto.pieces if piece.score and not values]
    for piece, score in zip(scored, [piece.score for piece in reversed(scored)], strict=True):
        piece.score = score
    path.write_bytes(proto.SerializeToString())


@pytest.mark.parametrize("values", [{"add_dummy_prefix": False}, {}])
def test_what_a_llamas_file_says_is_done(values: dict[str, Any], folders: Path, tmp_path: Path) -> None:
    folder = copied(folders / "llama", tmp_path / "llama")
    edit(folder / "tokenizer.model", "normalizer_spec", **values)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    here = load_tokenizer(folder, "llama", {})
    for text in [*texts()[-50:], "the dog  barks", "naïve 日本"]:
        if text and "<" not in text:
            assert here.encode(text) == pieces.encode(text), text
            assert here.decode(pieces.encode(text)) == pieces.decode(pieces.encode(text))


REFUSED = [
    ("t5", "normalizer_spec", {"add_dummy_prefix": False}, "add_dummy_prefix False"),
    ("t5", "normalizer_spec", {"remove_extra_whitespaces": False}, "remove_extra_whitespaces False"),
    ("t5", "trainer_spec", {"split_by_whitespace": False}, "split_by_whitespace False"),
    ("llama", "normalizer_spec", {"remove_extra_whitespaces": True}, "remove_extra_whitespaces True"),
    ("t5", "normalizer_spec", {"escape_whitespaces": False}, "escape_whitespaces False"),
    ("llama", "trainer_spec", {"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix True"),
    ("llama", "denormalizer_spec", {"precompiled_charsmap": b"x"}, "denormalizer_spec"),
    ("t5", "normalizer_spec", {"precompiled_charsmap": bytes(4) + b"a" * 200_000}, "more than 100,000 times"),
]


@pytest.mark.parametrize(("kind", "part", "values", "message"), REFUSED)
def test_what_a_file_says_and_is_not_done_is_refused(
    kind: str, part: str, values: dict[str, Any], message: str, folders: Path, tmp_path: Path
) -> None:
    folder = copied(folders / kind, tmp_path / kind)
    edit(folder / ("spiece.model" if kind == "t5" else "tokenizer.model"), part, **values)
    with pytest.raises(PretrainedError, match=message):
        load_tokenizer(folder, kind, {})


def test_tokens_are_readable_in_one_way(folders: Path) -> None:
    """As those of our own tokenizer: ▁ where a word begins, and the bytes of a part of a character."""
    for kind in ("gpt2", "bert", "t5", "llama", "marian"):
        here = load_tokenizer(folders / kind, kind, {})
        shown = here.tokens(here.encode("The old teacher reads"))
        assert "".join(shown).removeprefix("▁").lower() == "the▁old▁teacher▁reads", kind
    gpt2, llama = (load_tokenizer(folders / kind, kind, {}) for kind in ("gpt2", "llama"))
    assert gpt2.tokens(gpt2.encode("日 \n")) == ["<0xE6>", "<0x97>", "<0xA5>", "▁", "\\n"]
    assert llama.tokens(llama.encode("日")) == ["▁", "<0xE6>", "<0x97>", "<0xA5>"]
    assert gpt2.tokens([0, 10**6]) == ["<|endoftext|>", "<1000000>"]
    decode = tokenizers.decoders.ByteLevel().decode
    assert all(decode([each]) == chr(byte) for each, byte in BYTE_OF.items() if byte < 0x80)
    assert len(BYTE_OF) == len(set(BYTE_OF.values())) == 256
    assert BYTE_OF.keys() == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def test_special_ids_are_the_configurations_or_the_tokenizers(folders: Path, tmp_path: Path) -> None:
    bert = copied(folders / "bert", tmp_path / "bert", pad_token="[PAD]", bos_token="[CLS]", eos_token="[SEP]")
    here = load_tokenizer(bert, "bert", {"vocab_size": 400, "pad_token_id": 7})
    assert (here.pad_id, here.bos_id, here.eos_id) == (7, 2, 3)
    marks = {"eos_token": {"content": "[SEP]", "lstrip": False}, "mask_token": STRIPPED}
    (bert / "special_tokens_map.json").write_text(json.dumps(marks))
    here = load_tokenizer(bert, "bert", {"vocab_size": 400, "eos_token_id": [5, 6]})
    assert (here.pad_id, here.bos_id, here.eos_id) == (0, 2, 5)
    assert load_tokenizer(folders / "gpt2", "gpt2", {}).eos_id is None
    marian = load_tokenizer(folders / "marian", "marian", {})
    assert marian.decode([marian.eos_id, *marian.encode("the"), marian.pad_id]) == "the"


@pytest.mark.parametrize("mask", ["[MASK]", "<hide>"])
def test_an_old_berts_gaps_are_filled(mask: str, folders: Path, tmp_path: Path) -> None:
    folder = copied(folders / "bert", tmp_path / "bert", mask_token=mask)
    torch.manual_seed(1)
    sizes = {"vocab_size": 401, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    tr.BertForMaskedLM(tr.BertConfig(**sizes, intermediate_size=8, initializer_range=0.5)).save_pretrained(folder)
    filler: Any = Filler(*load(folder))
    there: Any = transformers.pipeline("fill-mask", str(folder))(f"The {mask} Barks")
    (guesses,) = filler.fill("The [MASK] Barks")
    assert [guess.text for guess in guesses] == [each["token_str"].strip() for each in there]
    assert [guess.probability for guess in guesses] == pytest.approx([each["score"] for each in there], rel=1e-4)


def test_added_tokens_have_the_ids_that_their_file_says(folders: Path, tmp_path: Path) -> None:
    folder = copied(folders / "bert", tmp_path / "bert")
    size = load_tokenizer(folder, "bert", {}).vocab_size
    (folder / "added_tokens.json").write_text(json.dumps({"<b>": size + 1, "<a>": size}))
    here, there = load_tokenizer(folder, "bert", {}), tr.BertTokenizer.from_pretrained(folder)
    assert here.encode("the <a>dog<b>") == there("the <a>dog<b>", add_special_tokens=False)["input_ids"]
    assert here.encode("<b>") == [size + 1]
    (folder / "added_tokens.json").write_text(json.dumps({"<a>": size + 5}))
    with pytest.raises(PretrainedError, match=r"'<a>' can't have the id"):
        load_tokenizer(folder, "bert", {})


BAD = [
    ("gpt2", "merges.txt", "#version: 0.2\nq zz\n", "vocab.json is not a tokenizer"),
    ("gpt2", "vocab.json", "[]", "vocab.json is not a tokenizer"),
    ("gpt2", "tokenizer_config.json", '{"add_prefix_space": 1}', "add_prefix_space is 1"),
    ("bert", "vocab.txt", "a\nb\n", "vocab.txt holds no '[UNK]'"),
    ("bert", "tokenizer_config.json", '{"do_basic_tokenize": false}', "do_basic_tokenize False is not supported"),
    (
        "bert",
        "tokenizer_config.json",
        '{"tokenizer_class": "BertJapaneseTokenizer"}',
        "'BertJapaneseTokenizer'",
    ),
    ("bert", "tokenizer_config.json", '{"mask_token": 3}', "a special token is 3"),
    ("bert", "tokenizer_config.json", '{"sep_token": null}', "names no cls_token or no sep_token"),
    (
        "bert",
        "tokenizer_config.json",
        '{"extra_special_tokens": true}',
        "extra_special_tokens is True, expected a list",
    ),
    ("bert", "tokenizer_config.json", '{"added_tokens_decoder": [1]}', "does not give tokens by id"),
    ("t5", "spiece.model", "no model", "spiece.model is not a model of sentencepiece"),
    ("t5", "spiece.model", "../llama/tokenizer.model", "has model_type 2, only 1 is supported"),
    ("t5", "tokenizer_config.json", '{"extra_ids": 1e9}', "extra_ids is 1000000000.0"),
    ("llama", "tokenizer.model", "../t5/spiece.model", "has model_type 1, only 2 is supported"),
    ("marian", "source.spm", "no model", "source.spm and target.spm must be models of sentencepiece"),
    ("marian", "vocab.json", '{"a": 1}', "does not number pieces, with <unk> among them"),
]


@pytest.mark.parametrize(("kind", "name", "content", "message"), BAD)
def test_a_bad_vocabulary_is_refused(
    kind: str, name: str, content: str, message: str, folders: Path, tmp_path: Path
) -> None:
    folder = copied(folders / kind, tmp_path / kind)
    other = folders / kind / content if content.startswith("..") else None
    (folder / name).write_bytes(other.read_bytes() if other else content.encode())
    with pytest.raises(PretrainedError, match=re.escape(message)) as caught:
        load_tokenizer(folder, kind, {})
    assert "\n" not in str(caught.value)


def test_a_vocabulary_must_be_whole(folders: Path, tmp_path: Path) -> None:
    folder = copied(folders / "gpt2", tmp_path / "gpt2")
    (folder / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"merges\.txt"):
        load_tokenizer(folder, "gpt2", {})
    (folder / "vocab.json").unlink()
    assert load_tokenizer(folder, "gpt2", {}) is None
    with open(folder / "tokenizer.json", "wb") as file:
        file.truncate(10**9)
    with pytest.raises(PretrainedError, match="more than 100,000,000 bytes"):
        load_tokenizer(folder, "gpt2", {})


class Script:
    """Chooses tokens that are written down, where a `Sampling` draws."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = iter(ids)

    def choose(self, *_: Any) -> int:
        """The next token."""
        return next(self.ids)


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "ours"])
def test_a_stream_is_the_text_of_all_its_tokens(kind: str, count: int, folders: Path) -> None:
    """Also where tokens are parts of characters, whole or broken, and spaces, which some tokenizers take off."""
    ours = BPETokenizer.train(texts(), 600)
    tokenizer: Any = ours if kind == "ours" else load_tokenizer(folders / kind, kind, {})
    size, draw = tokenizer.vocab_size, random.Random(2)
    config = GPTConfig(size, d_model=4, num_heads=1, d_ff=4, num_layers=1, max_length=90, bos_id=1, eos_id=None)
    generator = Generator(GPT(config), tokenizer)
    bytes_ = [index for index in range(size) if re.fullmatch("<0x..>|[^ -~]", tokenizer.tokens([index])[0])]
    whole = [text for text in texts() if text.strip() and "<" not in text and len(tokenizer.encode(text)) < 40]
    pieces = 0
    for prompt, text in zip(draw.choices(["", *whole], k=count), draw.choices(whole, k=count), strict=True):
        ids = tokenizer.encode(text)
        broken = [draw.choice(draw.choice([bytes_, range(3, size)])) for _ in range(draw.randrange(1, 12))]
        for written in (ids, [*ids[-9:], *broken, *ids[:9]]):
            given: list[Any] = [Script(written), Script(written)]
            streamed = list(generator.stream(prompt, len(written), given[0]))
            assert ["".join(streamed)] == generator.generate(prompt, len(written), given[1])
            before = [1, *tokenizer.encode(prompt)]
            start, everything = tokenizer.decode(before), tokenizer.decode([*before, *written])
            assert not everything.startswith(start) or "".join(streamed) == everything[len(start) :]
            pieces += len(streamed)
    assert pieces > 7 * count
