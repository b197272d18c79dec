"""Other libraries' tokenizers in JavaScript against the package tokenizers: the same ids, tokens and texts."""

import random
from typing import Any

import pytest
from support.explorer_engine import Call, needs_node, payload_of, run_engine
from support.explorer_tokenizers import KINDS, model_for, page_of, tokenizer_of
from test_explorer_tokenizer import ODD, random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from minitransformer import Transformer
from minitransformer.decoding import Generator, Translator
from minitransformer.explorer.cutting import as_javascript
from minitransformer.models import GPT, GPTConfig, T5Config
from minitransformer.pretrained.tokenizers import PretrainedTokenizer

MORE = [
    *("<|endoftext|>", "a<|im_start|>user\nhi <|im_end|>", "<|im_star", " <s> </s>x", "<|user|>  \n x", "a walrus"),
    *("Café dog", "CAFÉ DOG  gap", "x   gap", " <extra_id_0>  <extra_id_1>", "<unk>", "It's WE'LL they'ſ 'S 'ſ"),
    *("12345 1 22 333", "½Ⅷ²", "x\r\n\r\n  y\n", "ﬁ ﬀ ½ ｱﾞ ㌀ ①", "e\u0301 Å \u212b \u0344", "क्षि क्ष"),
    *("ΣΑΣ ΟΔΟΣ İ", "日本語中文 한국어", "  walruswalrus ", "haaa aaaaa -- --- ----- -------", "<0x41>é<0xFF>"),
]


@needs_node
@pytest.mark.parametrize("kind", KINDS)
def test_ids_tokens_and_texts_are_the_packages(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    content, texts = page_of(tokenizer), ODD[1:] + MORE + random_texts(200)
    generator = Generator(model_for(tokenizer), tokenizer)
    encoded = run_engine(content, [Call("encodeTarget", [text]) for text in texts])
    for text, found in zip(texts, encoded, strict=True):
        empty = not found["ids"] and not tokenizer.encode(text)  # which no model reads
        assert empty or found["ids"] == generator.encode(text), repr(text)
    ids = [tokenizer.encode(text) for text in texts]
    draw = random.Random(7)
    ids += [[draw.randrange(tokenizer.vocab_size) for _ in range(draw.randrange(12))] for _ in range(200)]
    shown = run_engine(content, [Call("tokens", [each]) for each in ids])
    assert [[token["text"] for token in tokens] for tokens in shown] == [tokenizer.tokens(each) for each in ids]
    assert run_engine(content, [Call("decode", [each]) for each in ids]) == [tokenizer.decode(each) for each in ids]


@needs_node
def test_a_t5_reads_the_ids_that_its_translator_gives_it() -> None:
    tokenizer = tokenizer_of("T5")
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "max_length": 30}
    model = Transformer(T5Config(tokenizer.vocab_size, **sizes, eos_id=tokenizer.inner.token_to_id("</s>")))
    texts = ["", " \n", "Ein <extra_id_0> bellt.", "the dog " * 40, "the dog " * 100]
    found = run_engine(payload_of(model, tokenizer), [Call("encodeSource", [text]) for text in texts])
    *whole, long = Translator(model, tokenizer).encode(texts, truncate=True)
    assert [each["ids"] for each in found] == [*whole, [*long[:255], long[-1]]]
    assert [each["isCut"] for each in found] == [False] * 4 + [True]


@needs_node
def test_a_character_of_several_tokens_is_the_first_ones() -> None:
    tokenizer = tokenizer_of("GPT-2")
    (tokens,) = run_engine(page_of(tokenizer), [Call("tokens", [tokenizer.encode("a 日<|im_end|>x")])])
    pieces = [token["piece"] for token in tokens]
    assert "".join(pieces) == "a 日x"
    assert pieces.count("") == 3, "two bytes of a character, and the mark"
    assert [token["isSpecial"] for token in tokens].index(True) == len(tokens) - 2
    assert tokens[-1]["word"] == tokens[-2]["word"] + 1 == tokens[-3]["word"] + 2


HOSTILE = ["</script><script>alert(1)</script>", "\u202eright", "a\x00\x1b[31mb", "<!--", "\u2028"]


@needs_node
def test_hostile_tokens_are_shown_and_never_stand_in_the_page() -> None:
    from minitransformer.explorer.payload import in_page

    inner = Tokenizer.from_str(tokenizer_of("GPT-2").inner.to_str())
    inner.add_tokens([AddedToken(each, normalized=False) for each in HOSTILE])
    tokenizer = PretrainedTokenizer(inner, {}, {})
    content = page_of(tokenizer)
    page = in_page(content)
    assert page.count(b"</script") == in_page({}).count(b"</script")
    assert not {*"\x00\x1b\u202e\u2028"} & {*page.decode()}
    ids = tokenizer.encode("".join(HOSTILE))
    assert len(ids) == len(HOSTILE)
    (tokens,) = run_engine(content, [Call("tokens", [ids])])
    assert [token["text"] for token in tokens] == [*HOSTILE[:1], "\\u202eright", "a\\x00\\x1b[31mb", "<!--", "\\u2028"]


def bytes_with(**parts: Any) -> PretrainedTokenizer:
    inner = Tokenizer.from_str(tokenizer_of("GPT-2").inner.to_str())
    for name, part in parts.items():
        setattr(inner, name, part)
    return PretrainedTokenizer(inner, {}, {})


def test_what_the_page_would_cut_differently_is_refused() -> None:
    alone = bytes_with()
    alone.inner.add_tokens([AddedToken("walrus", single_word=True)])
    first = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Digits()])
    pieces = PretrainedTokenizer(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")), {}, {})
    ends = models.BPE({"a": 0}, [], end_of_word_suffix="</w>")
    for tokenizer, says in [
        (PretrainedTokenizer(alone.inner, {}, {}), "marks between words alone"),
        (bytes_with(pre_tokenizer=pre_tokenizers.Punctuation()), "Punctuation"),
        (bytes_with(pre_tokenizer=first), "ByteLevel"),
        (bytes_with(pre_tokenizer=pre_tokenizers.Split("a", "contiguous")), "Contiguous"),
        (bytes_with(pre_tokenizer=pre_tokenizers.Split(Regex(r"\w+$"), "isolated")), "regular expression"),
        (bytes_with(normalizer=normalizers.StripAccents()), "StripAccents"),
        (bytes_with(decoder=decoders.CTC()), "CTC"),
        (bytes_with(decoder=None), "how ids become a text"),
        (bytes_with(model=ends), "end_of_word_suffix"),
        (pieces, "WordPiece"),
    ]:
        with pytest.raises(ValueError, match=says):
            page_of(tokenizer)
    small = GPT(GPTConfig(500, d_model=4, num_heads=1, d_ff=4, num_layers=1))
    with pytest.raises(ValueError, match="has 600 ids, and the model only 500"):
        payload_of(small, tokenizer_of("GPT-2"))


WITHOUT_EQUAL = ["a++", "(?>a)", "(?i)a", "(?i:a)", "^a", "a$", r"\Aa", r"\bx", r"\w", r"\h", "[a[b]]", "[a&&b]"]
WITHOUT_EQUAL += ["[[:alpha:]]", r"\p{Greek}", r"\p{^L}", "a{2}?", "a{,3}", "(?<n>a)", r"(a)\1", r"\u0041", "[]a]"]


@pytest.mark.parametrize("pattern", WITHOUT_EQUAL)
def test_regular_expressions_without_an_equal_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        as_javascript(pattern)


@needs_node
def test_regular_expressions_match_what_the_packages_engine_matches() -> None:
    text = "a b\u0085c\ufeffd\n\r\v\f\u2028 'S 'ſ 'LL x' 12٣½Ⅷ _-.,]}{[|\\ 日本 ひカ 한 ǅ e\u0301 \u200b💥"
    for pattern in [
        *(r"\s+", r"\S", r"[^\s\d]+", r"\D", r".", r"\.", r"[\]\[\-}]", r"[^\\|]+", r"\x{65E5}|\x{1F4A5}", r"\p{Han}+"),
        *(r"[\p{Hiragana}\p{Katakana}\p{Hangul}]", r"\p{Lt}", r"\P{L}{2,3}?", r"(?:a|b)(?=\s)|(?<!\s)\p{N}+?"),
        *(r"[\n\r\v\f]", r"x(?i:'s|'t|'re|'ve|'m|'ll|'d)?|(?i:'s|'t|'re|'ve|'m|'ll|'d)"),
    ]:
        tokenizer = bytes_with(pre_tokenizer=pre_tokenizers.Split(Regex(pattern), "removed"))
        expected = [piece for piece, _ in tokenizer.inner.pre_tokenizer.pre_tokenize_str(text)]
        part = {"text": text, "isFirst": True, "id": None}
        step = ["split", as_javascript(pattern), "Removed", False]
        (found,) = run_engine(None, [Call("pretrained.js:split", [step, part])])
        assert [each["text"] for each in found] == expected, pattern
