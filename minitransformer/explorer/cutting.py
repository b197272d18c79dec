"""How a page cuts text: a tokenizer as JSON that `src/engine/tokenizer.js` and `src/engine/pretrained.js` obey.

A tokenizer of the package tokenizers is a pipeline. Each of its steps becomes one or two of a few small operations, and
its regular expressions become JavaScript's. What the page would do differently is refused.
"""

import json
import re
import string
from typing import Any

from ..data.tokenizer import BPETokenizer
from ..pretrained.pipeline import steps_of
from ..pretrained.tokenizers import PretrainedTokenizer

Steps = list[list[Any]]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How ByteLevel cuts a text unless it is told not to."""

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE, FORMS = r"\p{White_Space}", ("NFC", "NFD", "NFKC", "NFKD")


def tokenizer_as_json(tokenizer: Any, config: Any) -> dict[str, Any]:
    """Return all that the page needs of a tokenizer, with the ids that stand before and after a text.

    Raises `ValueError`, in one sentence, for a tokenizer with a part that the page does not have.
    """
    if isinstance(tokenizer, BPETokenizer):
        is_gpt = config.kind == "gpt"
        begins = is_gpt and config.bos_id not in (None, config.eos_id)
        around = {"before": [config.bos_id] * begins, "after": [] if is_gpt else [config.eos_id]}
        return {"characters": tokenizer.characters, "merges": [list(merge) for merge in tokenizer.merges], **around}
    if not isinstance(tokenizer, PretrainedTokenizer):
        raise ValueError(
            f"the model's tokenizer, {type(tokenizer).__name__}, is none of those that the explorer's page has"
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(f"the tokenizer has {tokenizer.vocab_size} ids, and the model only {config.vocab_size}")
    values, inner = json.loads(tokenizer.inner.to_str()), tokenizer.inner
    before, _, after = tokenizer.around("a")
    known = inner.get_vocab(with_added_tokens=False)
    names = ("id", "content", "special", "normalized", "lstrip", "rstrip")
    if any(each["single_word"] for each in values["added_tokens"]):
        raise ValueError("the tokenizer looks for marks between words alone (single_word): the explorer's page can't")
    return {
        "pieces": [inner.id_to_token(index) for index in range(tokenizer.vocab_size)],
        "added": [
            {name: each[name] for name in names} | {"isPiece": each["content"] in known}
            for each in values["added_tokens"]
        ],
        "normalizer": [step for each in steps_of(values["normalizer"]) for step in _normalizer(each)],
        "cuts": _cuts(list(steps_of(values["pre_tokenizer"]))),
        "model": _model(values["model"], known),
        "decoder": _decoder(list(steps_of(values["decoder"]))),
        "before": before,
        "after": after,
    }


def _refused(step: Any) -> ValueError:
    return ValueError(f"the tokenizer has the step {json.dumps(step)[:200]}, which the explorer's page does not have")


def _normalizer(step: dict[str, Any]) -> Steps:
    kind = step["type"]
    if kind in FORMS:
        return [["form", kind]]
    if kind == "Lowercase":
        return [["lower"]]
    if kind == "Prepend":
        return [["prefix", step["prepend"], "any"]]
    if kind == "Replace":
        return [["replace", _pattern(step), step["content"]]]
    if kind == "Strip":
        ends = [f"^{SPACE}+"] * step["strip_left"] + [f"{SPACE}+$"] * step["strip_right"]
        return [["replace", end, ""] for end in ends]
    if kind == "Precompiled":
        return [["map", step["precompiled_charsmap"]]] if step["precompiled_charsmap"] else []
    raise _refused(step)


def _cuts(steps: list[dict[str, Any]]) -> Steps:
    found: Steps = []
    for number, step in enumerate(steps):
        kind = step["type"]
        if kind == "Split" and step["behavior"] != "Contiguous":
            found.append(["split", _pattern(step), step["behavior"], step["invert"]])
        elif kind == "Digits":
            found.append(["split", r"\p{N}" if step["individual_digits"] else r"\p{N}+", "Isolated", False])
        elif kind == "WhitespaceSplit":
            found.append(["split", SPACE, "Removed", False])
        elif kind == "Metaspace":
            space = step["replacement"]
            found.append(["replace", " ", space])
            found += [["prefix", space, step["prepend_scheme"]]] * (step["prepend_scheme"] != "never")
            found += [["split", space, "MergedWithNext", False]] * step["split"]
        elif kind == "ByteLevel" and number == len(steps) - 1:
            found += [["prefix", " ", "always"]] * step["add_prefix_space"]
            found += [["split", as_javascript(GPT2), "Isolated", False]] * step["use_regex"]
            found.append(["bytes"])
        else:
            raise _refused(step)
    return found


def _model(model: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    kind = model.get("type")
    if kind == "Unigram":
        scores = [score for _, score in model["vocab"]]
        return {"type": kind, "scores": scores, "unknown": model["unk_id"], "byteFallback": model["byte_fallback"]}
    odd = [name for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(name)]
    if kind != "BPE" or odd:
        what = f"is of the kind {kind}" if kind != "BPE" else f"has {odd[0]}"
        raise ValueError(f"the tokenizer {what}: the explorer's page cuts with BPE and Unigram alone")
    pairs = (each if isinstance(each, list) else each.split(" ") for each in model["merges"])
    return {
        "type": kind,
        "merges": [ids[part] for pair in pairs for part in pair],
        "unknown": None if model["unk_token"] is None else ids.get(model["unk_token"]),
        "fuseUnknown": model["fuse_unk"],
        "byteFallback": model["byte_fallback"],
        "ignoreMerges": model["ignore_merges"],
    }


def _decoder(steps: list[dict[str, Any]]) -> Steps:
    found: Steps = []
    for step in steps:
        kind = step["type"]
        if kind == "Replace":
            found.append(["replace", _pattern(step), step["content"]])
        elif kind in ("ByteFallback", "Fuse", "ByteLevel"):
            found.append([kind])
        elif kind == "Strip" and len(step["content"]) == 1:
            found.append([kind, step["content"], step["start"], step["stop"]])
        elif kind == "Metaspace":
            found.append([kind, step["replacement"], step["prepend_scheme"] != "never"])
        else:
            raise _refused(step)
    if not found:
        raise ValueError("the tokenizer does not say how ids become a text (decoder): the explorer's page can't tell")
    return found


def _pattern(step: dict[str, Any]) -> str:
    pattern = step["pattern"]
    if "String" in pattern:
        return "".join(map(_literal, pattern["String"]))
    return as_javascript(pattern["Regex"])


# --- Regular expressions ----------------------------------------------------------------------------------------------

CLASSES = {r"\s": SPACE, r"\S": r"\P{White_Space}", r"\d": r"\p{Nd}", r"\D": r"\P{Nd}"}
SCRIPTS = ("Han", "Hiragana", "Katakana", "Hangul")
PART = re.compile(
    r"(?P<property>\\[pP]\{(?P<name>\w+)\})|(?P<code>\\x\{(?P<hex>[0-9A-Fa-f]{1,6})\})|(?P<class>\\[sSdD])"
    rf"|(?P<control>\\[rntfv])|(?P<escape>\\[^\w\s])|(?P<fold>{re.escape(CONTRACTIONS)})"
)
IN_CLASS = re.compile(r"(?P<plain>[^\[\]\\&])")
OUTSIDE = re.compile(
    r"(?P<plain>\(\?[:=!]|\(\?<[=!]|\((?!\?)|[)|]|(?:[?*+]\??|\{\d+,\d*\}\??|\{\d+\}(?!\?))(?![?*+{])"
    r"|[^\\()\[\]{}|.^$*+?])|(?P<dot>\.)"
)


def as_javascript(pattern: str) -> str:
    """Return a regular expression of the package's engine, Oniguruma, as JavaScript's with the flag u.

    Their classes differ: `\\s` of JavaScript has U+FEFF, and lacks U+0085. Raises `ValueError` for a part that has no
    equal here.
    """
    found, place, inside = list[str](), 0, False
    while place < len(pattern):
        if not inside and pattern[place] == "[" and (opened := re.compile(r"\[\^?(?!\])").match(pattern, place)):
            part, inside, place = opened[0], True, opened.end()
        elif inside and pattern[place] == "]":
            part, inside, place = "]", False, place + 1
        else:
            match = PART.match(pattern, place) or (IN_CLASS if inside else OUTSIDE).match(pattern, place)
            if match is None:
                raise _untranslated(pattern)
            part, place = _part(pattern, match), match.end()
        found.append(part)
    return "".join(found)


def _part(pattern: str, match: re.Match[str]) -> str:
    text, kind = match[0], match.lastgroup
    if kind == "property" and match["name"] in SCRIPTS:
        return text.replace("{", "{Script=")
    if kind == "property" and not re.fullmatch("[LMNPSZ][a-z]?", match["name"]):
        raise _untranslated(pattern)
    if kind == "code":
        return rf"\u{{{match['hex']}}}"
    if kind == "class":
        return CLASSES[text]
    if kind == "escape":
        return _literal(text[1])
    if kind == "fold":  # without regard to case, which not every browser can say
        return "(?:'(?:[sS\u017ftTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))"
    return r"[^\n]" if kind == "dot" else text


def _literal(character: str) -> str:
    return character if character in string.ascii_letters + string.digits else rf"\u{{{ord(character):x}}}"


def _untranslated(pattern: str) -> ValueError:
    return ValueError(f"the tokenizer has the regular expression {pattern[:200]!r}, which the explorer's page can't do")
