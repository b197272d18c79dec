"""`pytorch_model.bin`: the tensors in a pickle that is never run.

`torch.save` writes a zip archive: the pickle `data.pkl`, and a record of bytes for each storage, an array of numbers in
which one or several tensors lie. A pickle is a program for a machine with a stack. One of its instructions calls any
function of Python by its name, so a stranger's pickle can do whatever Python can. The machine here knows the
instructions that describe tensors. It looks no name up and calls nothing: the few names that it knows, it compares.

Raises PretrainedError, which names the instruction or the function, for everything else.
"""

import io
import math
import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np

from ..system.tensor_file import MOST_AXES, TYPES, Tensor, widened
from .errors import PretrainedError

LONGEST_PICKLE, LONGEST_DIRECTORY = 2_000_000, 2_000_000
"""In bytes: some ten thousand tensors. The machine's memory is a small multiple of it."""

STORAGES = {
    "torch DoubleStorage": ("F64", 8),
    "torch FloatStorage": ("F32", 4),
    "torch HalfStorage": ("F16", 2),
    "torch BFloat16Storage": ("BF16", 2),
    "torch LongStorage": ("I64", 8),
    "torch IntStorage": ("I32", 4),
    "torch ShortStorage": ("I16", 2),
    "torch CharStorage": ("I8", 1),
    "torch ByteStorage": ("U8", 1),
    "torch BoolStorage": ("BOOL", 1),
}
"""The kinds of storages, with safetensors' names of their types, and the bytes of a number."""

TENSOR, PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
DICTIONARY = "collections OrderedDict"
PLAIN = "BININT BININT1 BININT2 LONG1 BINUNICODE".split()
"""Instructions that put their argument on the stack."""

CONSTANTS = {"EMPTY_TUPLE": (), "NEWTRUE": True, "NEWFALSE": False, "NONE": None}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Name(str):
    """The name of a function or of a class, in place of the thing itself."""

    __slots__ = ()


class _Storage(NamedTuple):
    """An array in the file: its type, the bytes of a number, its first byte and its length."""

    type: str
    size: int
    start: int
    length: int


@dataclass(frozen=True)
class View(Tensor):
    """A tensor whose entries do not lie one after the other: axis i goes on by `strides[i]` entries of its storage."""

    strides: tuple[int, ...]

    def _read(self, first: int, stop: int) -> np.ndarray:
        stored = np.memmap(self.path, TYPES[self.type], "r", self.start, (_span(self.shape, self.strides),))
        steps = [step * stored.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(stored, self.shape, steps, writeable=False)
        return widened(np.array(view.flat[first:stop]))


def tensors_of(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file of `torch.save`, after a check that each lies in the file."""
    with open(path, "rb", buffering=0) as file:
        if file.read(1) == b"\x80":
            message = "it is in PyTorch's format from before version 1.6: open it with PyTorch, and save it again"
            raise PretrainedError(f"{path} is not read: {message}")
    with _Frugal(path) as file:
        records = _Records(path, file)
        program = records.content("data.pkl")
        try:
            found = _run(path, program, records.storage)
        except PretrainedError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # instructions in an odd order
            raise PretrainedError(f"{path} is damaged: its pickle describes no tensors ({error})") from None
    if not isinstance(found, dict):
        raise PretrainedError(f"{path} holds no dictionary of tensors")
    for name, value in found.items():
        if not isinstance(value, Tensor):
            raise PretrainedError(f"{path} holds {shortened(name)}, which is no tensor")
    return found


def _run(path: Path, program: bytes, storage: Callable[[Any], _Storage]) -> Any:
    """Return what a pickle describes: a dictionary, if it is that of a model."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def after_mark() -> list[Any]:
        first = marks.pop()
        stack[first:], items = [], stack[first:]
        return items

    instructions: Any = pickletools.genops(program)
    for code, argument, _ in instructions:
        name = code.name
        if name in PLAIN:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name == "GLOBAL":
            if argument not in (TENSOR, PARAMETER, DICTIONARY, *STORAGES):
                called = str(argument).replace(" ", ".")
                raise PretrainedError(f"{path} is refused: its pickle names {called}, and only tensors are read")
            stack.append(_Name(argument))
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(after_mark()))
        elif name in TUPLES:
            stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "BINPERSID":
            stack[-1] = storage(stack[-1])
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_made(path, function, arguments))
        elif name in ("SETITEM", "SETITEMS"):
            items = after_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            target: Any = stack[-1]
            for key, value in zip(items[::2], items[1::2], strict=True):
                if not isinstance(key, str) or key in target:
                    raise ValueError(f"the name {shortened(key)} is no text, or it is there twice")
                target[key] = value
        elif name == "BUILD":
            stack.pop()  # a dictionary's own attributes: the versions of the model's layers
        elif name == "STOP":
            return stack.pop()
        elif name != "PROTO":
            raise PretrainedError(f"{path} is refused: its pickle has the instruction {name}, which no tensor needs")
    raise ValueError("it has no end")


def _made(path: Path, function: Any, arguments: Any) -> Any:
    """Return what one of the known functions would make."""
    if not isinstance(function, _Name) or not isinstance(arguments, tuple):
        raise ValueError("it calls what is no function")
    if function == TENSOR:
        return _tensor(path, *arguments[:4])
    if function == PARAMETER:
        return arguments[0]
    if function == DICTIONARY and not arguments:
        return {}
    raise ValueError(f"it calls {function}")


def _tensor(path: Path, storage: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
    """Return the tensor that begins at an entry of a storage, after a check that it lies in it."""
    numbers = (offset, *shape, *strides)
    whole = all(type(each) is int and 0 <= each < 1 << 63 for each in numbers)
    if not whole or not isinstance(storage, _Storage) or len(shape) != len(strides) or len(shape) > MOST_AXES:
        raise ValueError(f"a tensor has the shape {shortened(shape)} and the strides {shortened(strides)}")
    count = math.prod(shape)
    if max(count, offset + _span(shape, strides)) > storage.length:
        raise ValueError(f"a tensor of shape {shortened(shape)} does not fit into its storage")
    place = path, storage.type, shape, storage.start + offset * storage.size
    plain, step = True, 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        plain, step = plain and (length == 1 or stride == step), step * length
    return Tensor(*place) if plain or count == 0 else View(*place, strides)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of entries of a storage from a tensor's first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))


class _Frugal(io.FileIO):
    """A file of which no directory of endless length is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LONGEST_DIRECTORY:
            raise zipfile.BadZipFile("its directory is too long")
        return super().read(LONGEST_DIRECTORY if size is None or size < 0 else size)


class _Records:
    """The records of an archive, which lie in the file as they are, without compression."""

    def __init__(self, path: Path, file: io.FileIO):
        self.path, self.file = path, file
        try:
            records = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error) as error:
            raise PretrainedError(f"{path} is truncated or no file of torch.save: {error}") from None
        self.found = {each.filename.partition("/")[2]: each for each in records}
        if len(self.found) < len(records):
            raise PretrainedError(f"{path} is damaged: it has a record twice")
        if "byteorder" in self.found and self.content("byteorder") != b"little":
            raise PretrainedError(f"{path} holds numbers with their highest byte first, which is not supported")

    def place(self, name: str) -> tuple[int, int]:
        """Return the first byte of a record, and its length."""
        record = self.found.get(name)
        if record is None:
            raise PretrainedError(f"{self.path} lacks its record {shortened(name)}")
        size = record.file_size
        if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & 1 or record.compress_size != size:
            raise PretrainedError(f"{self.path}: its record {shortened(name)} is compressed, which is not supported")
        header = max(record.header_offset, 0)
        self.file.seek(header)
        mark, *lengths = struct.unpack("<4s22xHH", self.file.read(30).ljust(30))
        start = header + 30 + sum(lengths)  # the record's name and more about it lie between
        if mark != b"PK\3\4" or start + size > self.path.stat().st_size:
            raise PretrainedError(f"{self.path} is truncated: its record {shortened(name)} does not lie in it")
        return start, size

    def content(self, name: str) -> bytes:
        """Return the bytes of a record that is small."""
        start, size = self.place(name)
        if size > LONGEST_PICKLE:
            raise PretrainedError(f"{self.path}: its record {name} has more than {LONGEST_PICKLE:,} bytes")
        self.file.seek(start)
        return self.file.read(size)

    def storage(self, identity: Any) -> _Storage:
        """Return the storage that a pickle names by its kind, its record, its device and its length."""
        _, kind, key, _, count = identity
        if not (isinstance(kind, _Name) and kind in STORAGES and isinstance(key, str) and type(count) is int):
            raise ValueError("it names no storage")
        (type_, size), (start, length) = STORAGES[kind], self.place(f"data/{key}")
        if count * size != length:
            raise PretrainedError(
                f"{self.path} is damaged: storage {shortened(key)} has another size than the pickle says"
            )
        return _Storage(type_, size, start, count)
