"""Crafted checkpoints: files whose checksum is right and whose content is not.

A real checkpoint is taken apart, into its header, its description, its tokenizer and its arrays; one thing in it is
changed, and it is put together again with a new checksum. Every command that reads a checkpoint is given such files:
it says in one line what is wrong, or does its work where nothing is.
"""

import hashlib
import json
import math
import random
import struct
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from command_line import FINE
from forked import Attack, Outcome

from minitransformer.training.checkpoint import OPTIMIZER_PREFIX

BLANK = "0" * 64
RESUMED = "run/step-00000004.safetensors"
ORIGINALS = (RESUMED, "recurrent")
COMMANDS: dict[str, list[str]] = {
    "info": ["info", "crafted"],
    "translate": ["translate", "crafted", "A dog sleeps."],
    "evaluate": ["evaluate", "crafted", "--input", "few.en", "--reference", "few.de", "--beam", "1"],
    "average": ["average", "crafted", "old", "--output", "average"],
    "explore": ["explore", "crafted", "--out", "page.html"],
    "resume": ["train", "--resume", "run", "--steps", "6"],
}

DEEP = "[" * 100_000 + "]" * 100_000
DELETE = "delete"
VALUES = [
    *("null", "true", "false", "-1", "0", "1", "3", "0.5", "1.5", "1e-300", "1e300", "1e999", "1000000000"),
    *(str(2**63 - 1), str(2**63), "1" + "0" * 3000, "1" + "0" * 6000, "NaN", "Infinity", '""', '"x"', '"8"', '"../en"'),
    *('"\\u001b[31mred"', '"\\ud800"', json.dumps("x" * 100_000), json.dumps(["x"] * 1000), "[]", "[1]", '["en"]'),
    *('["en", "de"]', '["en", 5]', "[0, 1, 2]", "{}", '{"x": {"y": [1]}}', "[" * 9 + "]" * 9, "[" * 900 + "]" * 900),
    *(DEEP, DELETE),
]
"""JSON to put in the place of a value."""

SHAPES = [
    *("[]", "[0]", "[-1]", "[1.5]", '["x"]', "[1000000000000]", "[3, 1000000000000000]", "[18446744073709551615, 2]"),
    *("5", "null"),
]
OFFSETS = [
    *("[]", "[0]", "[0, 0]", "[4, 0]", "[1, 5]", "[-4, 0]", "[0, 1000000000000]", "[0, 18446744073709551616]", "null"),
    '["a", "b"]',
]
TYPES = ['"F64"', '"F16"', '"BF16"', '"I32"', '"BOOL"', '"F8_E4M3"', '"F4"', '"X"', '""', "5", "null", "[]"]
NAMES = ["", "\x1b[31mred", "x" * 10_000, "__metadata__", "optimizer/", "optimizer/x", "../x"]

FREE = {
    *("dropout", "attention_dropout", "max_length", "window", "layernorm_eps", "init_gain", "num_decoder_layers"),
    *("d_k", "d_v", "num_heads"),
}
"""Fields of a configuration on which no weight's shape depends, or that say what the others say."""

REAL = {
    *("dropout", "attention_dropout", "layernorm_eps", "init_gain", "minutes", "label_smoothing", "clip_norm"),
    *("peak_lr", "cooldown", "beta1", "beta2", "eps"),
}
"""Fields that need not be whole numbers."""


Fine = Callable[[str], bool]
ALWAYS: Fine = COMMANDS.__contains__
NEVER: Fine = ().__contains__
FOR_INFO: Fine = ("info",).__contains__
UNLESS_RESUMED: Fine = (COMMANDS.keys() - {"resume"}).__contains__


class Crafted(NamedTuple):
    """One change of a file: its name, its content, made when it is wanted, and the commands that may take it."""

    what: str
    content: Callable[[], bytes]
    is_fine: Fine


@dataclass(frozen=True)
class Parts:
    """A checkpoint taken apart."""

    description: dict[str, Any]
    entries: dict[str, Any]
    data: bytes

    @classmethod
    def of(cls, content: bytes) -> "Parts":
        """Return the parts of a file."""
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        description = json.loads(header.pop("__metadata__")["minitransformer"])
        return cls(description, header, content[8 + length :])

    def file(
        self,
        description: str | None = None,
        entries: str | None = None,
        data: bytes | None = None,
        header_length: int | None = None,
    ) -> bytes:
        """The file, with other JSON texts, data or length in the place of its own, and the checksum of what it is."""
        description = json.dumps(self.description) if description is None else description
        _, _, fields = description.removeprefix("{").partition(", ")  # the digest comes first
        blank = json.dumps({"sha256": BLANK}).removesuffix("}") + ", " + fields
        entries = _compact(self.entries) if entries is None else entries
        header = f'{{"__metadata__":{_compact({"minitransformer": blank})},{entries.removeprefix("{")}'.encode()
        length = struct.pack("<Q", len(header) if header_length is None else header_length)
        content = length + header + (self.data if data is None else data)
        return content.replace(BLANK.encode(), hashlib.sha256(content).hexdigest().encode(), 1)

    def changed(self, path: tuple[str, ...], value: str) -> bytes:
        """The file with this JSON text at a place of its description."""
        return self.file(_with(self.description, path, value))


def attacks(seed: int, count: int, world: Path) -> list[Attack]:
    """The first `count` crafted files of a seed, each given to one command."""
    found: list[tuple[str, Crafted]] = []
    for original in ORIGINALS:
        parts = Parts.of((world / original).read_bytes())
        for craft in (_descriptions, _tokenizers, _entries, _arrays, _files):
            found += [(original, crafted) for crafted in craft(parts)]
    random.Random(seed).shuffle(found)
    chosen = []
    for number, (original, crafted) in enumerate(found[:count]):
        command = list(COMMANDS)[number % len(COMMANDS)]
        if command == "resume" and original != RESUMED:
            command = "translate"
        path = RESUMED if command == "resume" else "crafted"
        attack = Attack(COMMANDS[command], partial(_judge, command, crafted), partial(_place, path, crafted))
        chosen.append(attack)
    return chosen


def _place(path: str, crafted: Crafted, world: Path) -> None:
    (world / path).write_bytes(crafted.content())


def _judge(command: str, crafted: Crafted, attack: Attack, outcome: Outcome) -> str | None:
    if outcome.status != 2 and not crafted.is_fine(command):
        return f"it was accepted: {crafted.what}"
    return None


def _descriptions(parts: Parts) -> Iterator[Crafted]:
    """Each value of the description in turn replaced by each of VALUES."""
    for path, old in _paths(parts.description):
        for value in VALUES:
            fine = partial(_may_be, path, old, value)
            content = partial(parts.changed, path, value)
            yield Crafted(f"{'.'.join(path)} = {value:.60}", content, fine)


def _tokenizers(parts: Parts) -> Iterator[Crafted]:
    """The tokenizer likewise, and merges that make no sense; some commands do not look at it."""
    tokenizer = json.loads(parts.description["tokenizer"])
    merges = tokenizer["merges"]
    texts = {
        f"{path[0]} = {value:.60}": _with(tokenizer, path, value)
        for path, old in _paths(tokenizer)
        for value in VALUES
        if value != json.dumps(old)
    }
    for what, others in {
        "doubling": [["e" * 2**n, "e" * 2**n] for n in range(25)],
        "fewer": merges[:-1],
        "in another order": merges[::-1],
        "twice": merges[:-1] + merges[:1],
        "of nothing": [["", ""]] * len(merges),
    }.items():
        texts[f"merges {what}"] = json.dumps({**tokenizer, "merges": others})
    for what, text in texts.items():
        description = json.dumps({**parts.description, "tokenizer": text})
        yield Crafted(f"tokenizer: {what}", partial(parts.file, description), FOR_INFO)


def _entries(parts: Parts) -> Iterator[Crafted]:
    """Yield each array of the header with its type, shape and place, in turn replaced; and its name."""
    for name in [next(iter(parts.entries)), *list(parts.entries)[1::7]]:
        of_optimizer = name.startswith(OPTIMIZER_PREFIX)
        for key, values in (("shape", SHAPES), ("data_offsets", OFFSETS), ("dtype", TYPES)):
            for value in [*values, DELETE, DEEP[:2000] + DEEP[-2000:]]:
                if value == json.dumps(parts.entries[name][key]):  # a number's shape is [] as it is
                    continue
                text = _with(parts.entries, (name, key), value)
                as_long = (parts.entries[name]["dtype"], value) in (("F32", '"I32"'), ("I64", '"F64"'))
                fine = UNLESS_RESUMED if of_optimizer and key == "dtype" and as_long else NEVER
                yield Crafted(f"{name}'s {key} = {value:.60}", partial(parts.file, entries=text), fine)
        yield Crafted(f"no {name}", partial(parts.file, entries=_with(parts.entries, (name,), DELETE)), NEVER)
        for other in NAMES:
            entries = {other if each == name else each: entry for each, entry in parts.entries.items()}
            fine = UNLESS_RESUMED if of_optimizer and other.startswith(OPTIMIZER_PREFIX) else FOR_INFO
            yield Crafted(f"{name} renamed {other!r:.40}", partial(parts.file, entries=_compact(entries)), fine)
        turned = [*parts.entries[name]["shape"][::-1], 1]
        fine = UNLESS_RESUMED if of_optimizer else FOR_INFO
        text = _with(parts.entries, (name, "shape"), json.dumps(turned))
        yield Crafted(f"{name}'s shape turned", partial(parts.file, entries=text), fine)
    for text in ("}", "5", "[", '"x":5}', '"x":[]}', DEEP, '"__metadata__":{}}', '"__metadata__":{"x":5}}'):
        yield Crafted(f"all entries = {text:.60}", partial(parts.file, entries=text), NEVER)


def _arrays(parts: Parts) -> Iterator[Crafted]:
    """Numbers that are not finite, or too large for anything, and data that is cut or goes on."""
    for what, number in (("NaN", math.nan), ("inf", math.inf), ("-inf", -math.inf)):
        for entry, where in list(parts.entries.items())[::9]:
            start, stop = where["data_offsets"]
            middle = start + (stop - start) // 8 * 4
            data = parts.data[:middle] + struct.pack("<f", number) + parts.data[middle + 4 :]
            fine = UNLESS_RESUMED if entry.startswith(OPTIMIZER_PREFIX) else NEVER
            yield Crafted(f"{what} in {entry}", partial(parts.file, data=data), fine)
    for number in (3.4e38, -3.4e38, 1e-45, 0.0):
        yield Crafted(
            f"all {number}", partial(parts.file, data=struct.pack("<f", number) * (len(parts.data) // 4)), ALWAYS
        )
    for what, data in (("no", b""), ("less", parts.data[:-4]), ("more", parts.data + bytes(4))):
        yield Crafted(f"{what} data", partial(parts.file, data=data), NEVER)


def _files(parts: Parts) -> Iterator[Crafted]:
    """The length of the header, as the file's first bytes say it."""
    for length in (0, 1, 100, len(parts.data), 10**8, 2**63, 2**64 - 1):
        yield Crafted(f"a header of {length} bytes", partial(parts.file, header_length=length), NEVER)


def _paths(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The way to everything in nested objects, and what is there."""
    for key, inner in value.items():
        if key != "sha256":
            yield (*above, key), inner
            if isinstance(inner, dict):
                yield from _paths(inner, (*above, key))


def _with(values: dict[str, Any], path: tuple[str, ...], value: str) -> str:
    """JSON text of an object in which `value` stands in the place of what `path` leads to, or nothing."""
    key, *rest = path
    texts = {name: json.dumps(inner) for name, inner in values.items()}
    texts[key] = _with(values[key], tuple(rest), value) if rest else value
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items() if text != DELETE) + "}"


def _compact(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))


def _may_be(path: tuple[str, ...], old: Any, value: str, command: str) -> bool:
    """Return True if a command may take a description in which `value` stands at `path`, in the place of `old`."""
    gone = value == DELETE
    try:
        new = None if gone else json.loads(value)
    except (ValueError, RecursionError):
        return False
    if new == old and type(new) is type(old) and (not gone or path[0] == "config"):  # what is null may be left out
        return True
    resumes, is_object = command == "resume", gone or isinstance(new, dict)
    match path:
        case ("step",):
            return _is_whole(new) and not resumes
        case ("tokenizer",):
            return command == "info" and isinstance(new, str | None) and not gone
        case ("config",):
            return command == "info" and new == {}
        case ("config", name):
            is_id = name in ("pad_id", "bos_id", "eos_id") and command == "info" and _is_whole(new)
            return command != "average" and (is_id or _is_fine(name, new, FREE) or (gone and command == "info"))
        case ("state",):
            return isinstance(new, dict) and not resumes
        case ("state", "tokens"):
            return not resumes if gone else _is_whole(new)
        case ("state", "languages"):
            return new in (None, ["en", "de"])
        case ("state", "data"):
            return is_object and not resumes
        case ("state", "data", _):
            return not resumes
        case ("state", "settings"):
            return new == {} or (is_object and not resumes and (gone or command != "info"))
        case ("state", "settings", name):
            is_open = new is None and name in ("minutes", "clip_norm", "peak_lr")
            return gone or is_open or command not in ("info", "resume") or _is_fine(name, new, FINE)
    return False


def _is_fine(name: str, value: Any, names: Container[str]) -> bool:
    return name in names and _is_number(value, whole=name not in REAL) and FINE[name](str(value))


def _is_number(value: Any, whole: bool) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value, whole=True) and 0 <= value < 2**63
