"""The tokenizer in JavaScript against Python's: the same ids for every text, the same tokens, the same text again."""

import random
import sys
import unicodedata

from support.explorer_engine import Call, Course, needs_node, payload_of, run_engine

from minitransformer import Transformer, TransformerConfig
from minitransformer.data.bpe import split_words
from minitransformer.data.tokenizer import BPETokenizer

pytestmark = needs_node

ODD = [
    *("", " ", "  ", "\n", "\r\n", "\t\t", " a", "a ", "a  b", "\ta\n", "\x00", "\x1c\x1d\x1e\x1f"),
    *("\x85\xa0\u2028\u2029", "\ufeffBOM", "\u200bzero\u200bwidth", "\u3000wide", "\u180e"),
    *("\u202eright\u202c", "soft\u00adhyphen", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽!", "💥" * 70, "a💥b", "é"),
    *("e\u0301" * 40, "ﬁ", "ß", "ẞ", "İi", "Ǆ", "𝒜𝒷", "Ⅷ", "½", "²", "①", "שלום עולם", "مرحبا بالعالم"),
    *("السلام 123", "हिन्दी में", "ไทย", "日本語テキスト", "中文字符", "한국어", "\u1100\u1161\u11a8", "<s>", "</s>"),
    *("<pad>", "<0x41>", "<script>alert('x')</script>", "</script><img src=x onerror=alert(1)>", "&lt;b&gt;"),
    *("<!-- x -->", "%PAYLOAD%", "${x}", "{{x}}", "\\n\\u0041", "'\"`", "__proto__", "constructor", "a_b__c"),
    *("_" * 70, "_x_", "x" * 63, "x" * 64, "x" * 65, "x" * 200, "1" * 130, "!" * 130, " " * 130, "\n" * 70),
    *("x1!_ " * 60, "dog " * 200, "3.14159", "1,000.00 €", "x²+y²", "don't", "it's", "e-mail", "C++"),
    *("a.b@c.de", "https://x.y/z?q=1#f", "½kg", "\ue000private", "\ufffd", "\uffff", "\U0010ffff"),
    *("\U000e0041", "٣", "१२", "\u0660\u0661", "𝟘𝟙", "〇一二", "㊿", "A man rides a bicycle."),
    *("Ein Mann fährt Fahrrad.", "Straßenbahnhaltestelle", "Zwei   Hunde\nrennen.", "THE DOG", "dOg"),
]


def random_texts(count: int) -> list[str]:
    draw = random.Random(5)
    scripts = [
        (32, 127),
        (0xA0, 0x250),
        (0x300, 0x370),
        (0x370, 0x500),
        (0x590, 0x700),
        (0x900, 0x980),
        (0x4E00, 0x4F00),
    ]
    scripts += [(0x4E00, 0x4F00), (0x1F300, 0x1F650), (0, 33), (0x2000, 0x2070), (32, 33), (48, 58), (95, 96)]
    lengths = [1, 1, 1, 2, 70]
    texts = []
    for _ in range(count):
        runs = range(draw.randrange(12))
        texts.append("".join(chr(draw.randrange(*draw.choice(scripts))) * draw.choice(lengths) for _ in runs))
    return texts


def test_ids_tokens_and_texts_are_pythons(course: Course) -> None:
    texts = ODD + random_texts(250)
    calls = [Call("encodeTarget", [text]) for text in texts]
    encoded = run_engine({**course.payload, "config": {**course.payload["config"], "maxLength": 100_000}}, calls)
    expected = [course.tokenizer.encode(text) for text in texts]
    assert [each["ids"][1:] for each in encoded] == expected
    shown = run_engine(course.payload, [Call("tokens", [ids]) for ids in expected])
    assert [[token["text"] for token in tokens] for tokens in shown] == [
        course.tokenizer.tokens(ids) for ids in expected
    ]
    assert run_engine(course.payload, [Call("decode", [ids]) for ids in expected]) == texts


def test_any_ids_have_pythons_text(course: Course) -> None:
    draw = random.Random(6)
    sequences = [[draw.randrange(3, 259) for _ in range(draw.randrange(9))] for _ in range(300)]
    sequences += [[draw.randrange(2000) for _ in range(20)] for _ in range(50)]
    sequences += [
        [3 + byte for byte in data] for data in (b"\xed\xa0\x80", b"\xed\xa0\x80\xff", b"\xf0\x9f", b"\xc0\x80")
    ]
    sequences += [
        [3 + byte for byte in data] for data in (b"\xf4\x90\x80\x80", b"\xef\xbb\xbfx", b"\xe0\x80\x80", b" \xc3\xa9")
    ]
    found = run_engine(course.payload, [Call("decode", [ids]) for ids in sequences])
    for ids, text in zip(sequences, found, strict=True):
        assert text.encode("utf-8", "surrogatepass") == course.tokenizer.decode(ids).encode("utf-8", "surrogatepass")


def test_words_are_cut_at_every_character_as_python_cuts_them() -> None:
    """At all characters that this Python's Unicode has: a newer one's are unknown to the older of the two."""
    everything = map(chr, range(sys.maxunicode + 1))
    characters = [c for c in everything if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    for start in range(0, len(characters), 20_000):
        text = "\n".join(f"a{c}{c}1{c} {c}!{c}_{c}" for c in characters[start : start + 20_000])
        assert run_engine(None, [Call("words.js:wordsOf", [text])]) == [split_words(text)]


def test_tokens_know_their_words_and_characters(course: Course) -> None:
    text = "The teachers' café: 日 💥!"
    ids = [1, *course.tokenizer.encode(text), 2]
    (tokens,) = run_engine(course.payload, [Call("tokens", [ids])])
    assert [token["id"] for token in tokens] == ids
    assert "".join(token["piece"] for token in tokens) == " " + text
    words: dict[int, str] = {}
    for token in tokens:
        words[token["word"]] = words.get(token["word"], "") + token["piece"]
    assert list(words) == list(range(len(words)))
    assert list(words.values()) == ["", *split_words(" " + text), ""]
    assert [token["isSpecial"] for token in tokens] == [True, *[False] * (len(ids) - 2), True]


def test_a_vocabulary_of_odd_characters() -> None:
    characters = "".join(sorted(' <>"&/\\\n\u2028aé日💥\u0301'))
    merges = [("<", "/"), ("</", "a"), ("a", "a"), ("aa", "a"), ("💥", "💥"), (" ", "💥💥"), ("\n", "\n")]
    tokenizer = BPETokenizer(characters, merges)
    config = TransformerConfig(tokenizer.vocab_size, d_model=8, num_heads=2, d_ff=8, num_layers=1, max_length=500)
    content = payload_of(Transformer(config), tokenizer)
    texts = ["aaaaa", "</a></a>", "💥💥💥💥💥", "a💥💥", "\n\n\n", "e\u0301é", "日本\u2028", "\\u003c"]
    calls = [call for i, text in enumerate(texts) for call in (Call("encodeTarget", [text]), Call("tokens", [[1]]))]
    found = run_engine(content, calls)[::2]
    assert [each["ids"][1:] for each in found] == [tokenizer.encode(text) for text in texts]
    shown = run_engine(content, [Call("tokens", [list(range(tokenizer.vocab_size))])])[0]
    assert [token["text"] for token in shown] == tokenizer.tokens(range(tokenizer.vocab_size))
