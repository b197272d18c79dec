"""Files of `torch.save`: the tensors that PyTorch reads from them, and nothing that a stranger's pickle asks for."""

import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.folders import flips
from support.pretrained_cases import KINDS, random_model
from support.refusals import refused_by_load

from minitransformer.pretrained import PretrainedError, load
from minitransformer.pretrained.pickles import tensors_of

SORTS = [torch.float32, torch.float16, torch.bfloat16]


def saved(value: Any, **options: Any) -> bytes:
    """What `torch.save` writes."""
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_model_is_the_same_as_from_safetensors(kind: str, shards: int, tmp_path: Path) -> None:
    model = random_model(kind, shards).to(SORTS[KINDS.index(kind) % 3])
    model.save_pretrained(tmp_path)
    wanted, _ = load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    names = list(model.state_dict())
    parts = {f"pytorch_model-{part}.bin": names[part::shards] for part in range(shards)}
    for file, held in parts.items():
        torch.save({name: model.state_dict()[name] for name in held}, tmp_path / file)
    if shards == 1:
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    else:
        places = {name: file for file, held in parts.items() for name in held}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    found, _ = load(tmp_path)
    assert found.config == wanted.config
    assert wanted.origin.types.items() <= found.origin.types.items()
    np.testing.assert_array_equal(found.parameters.data, wanted.parameters.data)


def test_tensors_are_where_their_storage_has_them(tmp_path: Path) -> None:
    """Views of one storage: transposed, cut, with steps, of one entry, of none; and a parameter."""
    table = torch.randn(6, 8)
    views = {
        "whole": table,
        "turned": table.t(),
        "row": table[4],
        "column": table[:, 3],
        "steps": table[1::2, ::3].t(),
        "axes": table.reshape(2, 3, 2, 4).permute(3, 0, 2, 1),
        "one": table[5, 7],
        "one long": table[:1].t()[2:3],
        "none": table[:0],
        "parameter": torch.nn.Parameter(table[2:].t()),
        "half": table.half().t(),
        "brain": table.bfloat16()[:, 1],
        "double": table.double()[::2],
    }
    (tmp_path / "views.bin").write_bytes(saved(views | {"ids": torch.arange(9)[3:]}))
    found = tensors_of(tmp_path / "views.bin")
    assert (found.pop("ids").type, len(found)) == ("I64", len(views))
    for name, view in views.items():
        wanted = view.detach().to(torch.float64 if view.dtype == torch.float64 else torch.float32).numpy()
        np.testing.assert_array_equal(found[name].read(), wanted, err_msg=name, strict=True)
        pieces = [piece for _, piece in found[name].pieces()]
        np.testing.assert_array_equal(np.concatenate([np.empty(0), *pieces]), wanted.reshape(-1), err_msg=name)
        assert found[name].equals(found[name])


class Attack:
    def __reduce__(self) -> Any:
        return os.system, ("touch attacked",)


def archive(program: bytes, compression: int = zipfile.ZIP_STORED, *, again: bytes = b"", **records: bytes) -> bytes:
    """An archive like those of `torch.save`, with a pickle and the storages `data/0`, `data/1`, …"""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as out:
        out.writestr("top/data.pkl", program)
        for name, content in records.items():
            out.writestr(f"top/{name}" if name == "byteorder" else f"top/data/{name.removeprefix('_')}", content)
        if again:
            out.writestr("top/data/0", again)
    return file.getvalue()


def number(value: int) -> bytes:
    return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)


def tensor(offset: int = 0, shape: Any = (3,), strides: Any = (1,), count: int = 3, key: str = "0") -> bytes:
    """Instructions that describe a dictionary with one tensor."""

    def numbers(values: Any) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    text = b"X" + len(key).to_bytes(4, "little") + key.encode()
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\n" + text + b"X\3\0\0\0cpu" + number(count) + b"tQ"
    made = storage + number(offset) + numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)R"
    return b"\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" + made + b"tRs."


def one(**changed: Any) -> bytes:
    return archive(tensor(**changed), _0=bytes(12))


def directory(change: Callable[[bytearray], Any]) -> bytes:
    """An archive whose directory, the part behind the records, is changed."""
    content = bytearray(one())
    change(content)
    return bytes(content)


def longer(content: bytearray) -> None:
    """Let the directory say that the storage is a terabyte, as the pickle does."""
    place = content.rindex(b"PK\1\2")
    content[place + 20 : place + 28] = (12 + (1 << 30)).to_bytes(4, "little") * 2


def legacy() -> bytes:
    return saved({"w": torch.ones(3)}, _use_new_zipfile_serialization=False)


DEEP = b"\x80\2)" + b"\x85" * 60_000
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "os.system": (lambda: saved({"w": Attack()}), f"its pickle names {os.system.__module__}.system, and only tensors"),
    "eval": (lambda: archive(b"\x80\2cbuiltins\neval\n(X\1\0\0\x001tR."), "its pickle names builtins.eval"),
    "a whole model": (lambda: saved(torch.nn.Linear(2, 2)), "its pickle names torch.nn.modules.linear.Linear"),
    "an array": (lambda: saved({"w": np.ones(3)}), "its pickle names numpy."),
    "an instance": (lambda: archive(b"\x80\2(ios\nsystem\n."), "has the instruction INST"),
    "a new protocol": (lambda: saved({"w": torch.ones(3)}, pickle_protocol=4), "instruction FRAME"),
    "a list": (lambda: saved([torch.ones(3)]), "has the instruction EMPTY_LIST"),
    "a number": (lambda: archive(pickle.dumps(5, 2)), "holds no dictionary of tensors"),
    "a number by name": (lambda: saved({"w": torch.ones(3), "epoch": 5}), "holds 'epoch', which is no tensor"),
    "a dictionary within": (lambda: saved({"model": {"w": torch.ones(3)}}), "holds 'model', which is no tensor"),
    "itself": (lambda: archive(b"\x80\2}q\0X\1\0\0\0wh\0s."), "holds 'w', which is no tensor"),
    "a number for a name": (lambda: saved({5: torch.ones(3)}), "the name 5 is no text"),
    "a name twice": (lambda: archive(b"\x80\2}(X\1\0\0\0wNX\1\0\0\0wNu."), "the name 'w' is no text, or it is there"),
    "a text that is called": (lambda: archive(b"\x80\2X\1\0\0\0w)R."), "it calls what is no function"),
    "a class that is called": (lambda: archive(b"\x80\2ctorch\nFloatStorage\n)R."), "it calls torch FloatStorage"),
    "a dictionary of lists": (lambda: archive(b"\x80\2ccollections\nOrderedDict\n))\x86R."), "describes no tensors"),
    "deep tuples": (lambda: archive(DEEP + b"."), "holds no dictionary"),
    "a deep key": (lambda: archive(b"\x80\2}" + DEEP[2:] + b"Ns."), "is no text"),
    "a deep storage": (lambda: archive(b"\x80\2(N" + DEEP[2:] + DEEP[2:] + b"NNtQ."), "it names no storage"),
    "a deep function": (lambda: archive(DEEP + b")R."), "it calls what is no function"),
    "a memo of four billion": (lambda: archive(b"\x80\2}r\xff\xff\xff\xffj\xff\xff\xff\xff."), "lacks|0 tensors"),
    "a memo of nothing": (lambda: archive(b"\x80\2h\7."), "describes no tensors"),
    "marks alone": (lambda: archive(b"(" * 100_000 + b"."), "describes no tensors"),
    "an empty stack": (lambda: archive(b"\x80\2R."), "describes no tensors"),
    "no end": (lambda: archive(b"\x80\2}"), "describes no tensors"),
    "an argument that is cut": (lambda: archive(b"\x80\2X\xff\xff\xff\x7fw"), "describes no tensors"),
    "a long pickle": (lambda: archive(b"N" * 2_000_001), "more than 2,000,000 bytes"),
    "a negative offset": (lambda: one(offset=-1), "a tensor has the shape"),
    "a negative stride": (lambda: one(strides=(-1,)), "a tensor has the shape"),
    "a negative length": (lambda: one(shape=(-3,)), "a tensor has the shape"),
    "too few strides": (lambda: one(strides=()), "a tensor has the shape"),
    "too many axes": (lambda: one(shape=(1,) * 9, strides=(1,) * 9), "a tensor has the shape"),
    "an offset beyond the storage": (lambda: one(offset=1), "does not fit into its storage"),
    "a stride beyond the storage": (lambda: one(strides=(2,)), "does not fit into its storage"),
    "a length beyond the storage": (lambda: one(shape=(1 << 62,), strides=(0,)), "does not fit into its storage"),
    "numbers repeated": (lambda: saved({"w": torch.ones(1).expand(9)}), "does not fit into its storage"),
    "a storage larger than the file": (lambda: one(count=1 << 60), "has another size than the pickle says"),
    "a storage of less than nothing": (lambda: one(count=-3), "has another size than the pickle says"),
    "a record larger than the file": (lambda: directory(longer), "'data/0' does not lie in it"),
    "a record that is not there": (lambda: one(key="7"), "lacks its record 'data/7'"),
    "a record upwards": (lambda: one(key="../data.pkl"), "lacks its record 'data/../data.pkl'"),
    "a record twice": (lambda: archive(tensor(), _0=bytes(12), again=bytes(12)), "has a record twice"),
    "compression": (lambda: archive(tensor(), zipfile.ZIP_DEFLATED, _0=bytes(12)), "is compressed"),
    "the highest byte first": (lambda: archive(tensor(), _0=bytes(12), byteorder=b"big"), "highest byte first"),
    "no pickle": (lambda: one().replace(b"data.pkl", b"data.pkk"), "lacks its record 'data.pkl'"),
    "the format before 1.6": (legacy, "in PyTorch's format from before version 1.6"),
    "a pointer to a file": (lambda: b"version https://git-lfs.github.com/spec/v1\n", "no file of torch.save"),
    "an empty file": (lambda: b"", "no file of torch.save"),
    "half a file": (lambda: saved({"w": torch.ones(99)})[:500], "is truncated or no file of torch.save"),
    "an endless directory": (lambda: b"PK\3\4" + bytes(3_000_000) + end(3_000_000), "its directory is too long"),
}


def end(size: int) -> bytes:
    """The last 22 bytes of an archive with a directory of this size."""
    return b"PK\5\6" + bytes(4) + b"\1\0\1\0" + size.to_bytes(4, "little") + (4).to_bytes(4, "little") + bytes(2)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, without a call, and before memory is taken."""
    make, message = BAD[name]
    monkeypatch.chdir(tmp_path)
    random_model("llama", 0).config.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(make())
    refused_by_load(tmp_path, *message.split("|"), most=50e6)
    assert not Path("attacked").exists()


def test_a_changed_byte_is_noticed_or_changes_numbers_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(saved(torch.nn.Linear(3, 2).state_dict()))
    read = refused = 0
    for _ in flips(path, step=7):
        try:
            for each in tensors_of(path).values():
                if each.readable:
                    each.read()
            read += 1
        except PretrainedError:
            refused += 1
    assert min(read, refused) > 20


def test_instructions_in_any_order_do_no_harm(tmp_path: Path) -> None:
    """Random programs of the machine's own instructions: each ends, with tensors or with an error."""
    draw, path = random.Random(0), tmp_path / "some.bin"
    words = [
        b"}",
        b"(",
        b")",
        b"N",
        b"t",
        b"\x85",
        b"\x86",
        b"\x87",
        b"s",
        b"u",
        b"R",
        b"Q",
        b"b",
        b"q\0",
        b"h\0",
        b"K\1",
    ]
    words += [b"X\1\0\0\0w", b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n", tensor()[2:-1]]
    for _ in range(200):
        path.write_bytes(
            archive(b"\x80\2" + b"".join(draw.choices(words, k=draw.randrange(1, 14))) + b".", _0=bytes(12))
        )
        try:
            found = tensors_of(path)
        except PretrainedError:
            continue
        assert all(each.read().shape == each.shape for each in found.values())
