"""Token ids on disk: what is built is read back, whole or not at all, in memory that does not grow with the corpus."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from support.folders import flips, largest_file

from minitransformer.data.token_dataset import TokenDataset
from minitransformer.system.sealed_json import seal


class WordTokenizer:
    """Words are decimal ids."""

    def __init__(self, vocab_size: int = 1_000):
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return list(map(int, text.split()))

    def to_json(self) -> str:
        return str(self.vocab_size)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_what_is_built_is_read_back(tmp_path: Path, vocab_size: int, dtype: type) -> None:
    pairs = [("5 6 7", "8"), ("9", f"10 {vocab_size - 1}")]
    dataset = TokenDataset.build(pairs, WordTokenizer(vocab_size), tmp_path / "ids")
    assert [(source.tolist(), target.tolist()) for source, target in dataset] == [
        ([5, 6, 7], [8]),
        ([9], [10, vocab_size - 1]),
    ]
    assert dataset[0][0].dtype == dtype
    assert (len(dataset), dataset.num_dropped, dataset.max_id) == (2, 0, vocab_size - 1)
    assert (dataset.source_lengths.tolist(), dataset.target_lengths.tolist()) == ([3, 1], [1, 2])
    assert sorted(os.listdir(tmp_path)) == ["ids"]
    with pytest.raises(IndexError, match="2 pairs has no pair 2"):
        dataset[2]


def test_in_memory_and_on_disk_are_the_same_dataset(tmp_path: Path) -> None:
    pairs = [("3 4", "5"), ("6", "7 8 9")]
    disk = TokenDataset.build(pairs, WordTokenizer(), tmp_path / "ids")
    encode = WordTokenizer().encode
    memory = TokenDataset.from_pairs([(encode(source), encode(target)) for source, target in pairs])
    for here, there in zip(disk, memory, strict=True):
        assert [side.tolist() for side in here] == [side.tolist() for side in there]
    assert (disk.max_id, disk.source_lengths.tolist()) == (memory.max_id, memory.source_lengths.tolist())


def test_the_checksum_is_of_every_id_and_place_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [([3, 4], [5]), ([6], [7, 8, 9])]
    dataset = TokenDataset.from_pairs(pairs)
    checksum = dataset.checksum()
    small = TokenDataset(np.arange(3, 10, dtype=np.uint16), np.array([0, 2, 3, 4, 7]), max_id=9)
    assert small.checksum() == checksum
    monkeypatch.setattr("minitransformer.data.token_dataset.CHECKSUM_BLOCK", 2)
    assert dataset.checksum() == checksum
    for other in ([([3, 4], [5]), ([6], [7, 8, 10])], [([3], [4, 5]), ([6], [7, 8, 9])], pairs[::-1]):
        assert TokenDataset.from_pairs(other).checksum() != checksum


def test_pairs_that_are_too_long_or_empty_are_dropped_and_counted(tmp_path: Path) -> None:
    pairs = [("3 " * 9, "3"), ("3 " * 10, "3"), ("3", "3 " * 10), ("", "3"), ("3", " \t"), ("", "")]
    dataset = TokenDataset.build(iter(pairs), WordTokenizer(), tmp_path / "ids", max_length=10)
    assert (len(dataset), dataset.num_too_long, dataset.num_empty, dataset.num_dropped) == (1, 2, 3, 5)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "no sentence pair is left: 0 had an empty side, 0 more than 4 tokens"),
        ([("3 3 3 3", "3"), ("", "3")], "no sentence pair is left: 1 had an empty side, 1 more than 4 tokens"),
        ([("3", "1000")], "token id 1000 is outside the vocabulary of 1000"),
        ([("3", "0")], r"token ids must be positive \(0 is padding\), got 0"),
    ],
)
def test_a_failed_build_leaves_nothing(tmp_path: Path, pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenDataset.build(pairs, WordTokenizer(), tmp_path / "ids", max_length=4)
    assert os.listdir(tmp_path) == []


def test_where_no_line_is_left_lines_are_spoken_of(tmp_path: Path) -> None:
    lines = [("3 3 3 3", ""), (" ", "")]
    with pytest.raises(ValueError, match="no line is left: 1 were blank, 1 had more than 4 tokens"):
        TokenDataset.build(lines, WordTokenizer(), tmp_path / "ids", max_length=4, one_sided=True)


def test_from_pairs_refuses() -> None:
    with pytest.raises(ValueError, match="pairs must not be empty"):
        TokenDataset.from_pairs([])
    with pytest.raises(ValueError, match="must be positive"):
        TokenDataset.from_pairs([([3], [-1])])
    with pytest.raises(TypeError, match="must be integers, got float64"):
        TokenDataset.from_pairs([([3], [4.5])])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.bin", b"\3\0\4", r"ids\.bin is damaged \(it must have 4 bytes, but has 3\)"),
        ("ids.bin", b"\3\0\5\0", r"ids\.bin is damaged \(it does not match its checksum\)"),
        ("offsets.bin", bytes(8), r"offsets\.bin is damaged \(it must have 24 bytes, but has 8\)"),
        ("offsets.bin", np.array([0, 3, 2]).tobytes(), r"offsets\.bin is damaged"),
        ("meta.json", b"{", r"meta\.json is damaged \(it is not valid JSON"),
        ("meta.json", b"[" * 10**5, r"meta\.json is damaged \(it is not valid JSON"),
        ("meta.json", b"[]", r"meta\.json is damaged \(it is not a JSON object"),
        ("meta.json", seal({"version": 2}), "it does not describe a minitransformer token dataset of version 2"),
    ],
)
def test_a_damaged_dataset_does_not_open(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    TokenDataset.build([("3", "4")], WordTokenizer(), tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        TokenDataset.open(tmp_path)
    assert str(error.value).endswith(f": delete the folder {tmp_path}, and the dataset is made again")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ids/thesis.txt", "ids/thesis.txt is not part of a token dataset: move it elsewhere"),
        ("ids", "ids is not a token dataset: move it elsewhere"),
        ("ids/ids.bin", "ids has no meta.json and is not a token dataset: move it elsewhere or delete it"),
    ],
)
@pytest.mark.parametrize("beside_a_dataset", [False, True])
def test_what_is_no_dataset_is_left_alone(tmp_path: Path, name: str, message: str, beside_a_dataset: bool) -> None:
    path, folder = tmp_path / name, tmp_path / "ids"
    if beside_a_dataset and name == "ids/thesis.txt":
        TokenDataset.build([("3", "4")], WordTokenizer(), folder)
    path.parent.mkdir(exist_ok=True)
    path.write_text("years of work")
    with pytest.raises(FileExistsError, match=message):
        TokenDataset.build([("5", "6")], WordTokenizer(), folder)
    assert path.read_text() == "years of work"
    path.rename(tmp_path / "elsewhere")  # as it says
    assert len(TokenDataset.build([("5", "6")], WordTokenizer(), folder)) == 1


def test_a_link_to_a_dataset_is_left_alone(tmp_path: Path) -> None:
    TokenDataset.build([("3", "4")], WordTokenizer(), tmp_path / "there")
    (tmp_path / "ids").symlink_to(tmp_path / "there")
    with pytest.raises(FileExistsError, match="ids is not a token dataset: move it elsewhere"):
        TokenDataset.build([("5", "6")], WordTokenizer(), tmp_path / "ids")
    assert TokenDataset.open(tmp_path / "ids")[0][0].tolist() == [3]


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    TokenDataset.build([("3 4", "5"), ("6", "7 8")], WordTokenizer(), tmp_path)
    for name in ("ids.bin", "offsets.bin", "meta.json"):
        for _ in flips(tmp_path / name):
            with pytest.raises(ValueError, match=rf"{name} is damaged .*: delete the folder {tmp_path}"):
                TokenDataset.open(tmp_path)
    TokenDataset.open(tmp_path)


def test_no_space_left(tmp_path: Path) -> None:
    with largest_file(10_000), pytest.raises(OSError, match=r"cannot write .*ids: File too large"):
        TokenDataset.build([("3", "4")] * 5_000, WordTokenizer(), tmp_path / "ids")
    assert os.listdir(tmp_path) == []


PROGRAM = textwrap.dedent(
    """
    import json, resource, sys
    from tqdm.std import tqdm
    from test_token_dataset import WordTokenizer
    from minitransformer.data.sentence_pairs import ParallelFiles
    from minitransformer.data.token_dataset import Batches, TokenDataset

    how, folder, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tqdm.monitor_interval = 0  # its thread's stack alone may be 8 MB
    # From here on, what the process writes to may grow by this much and no more.
    status = dict(line.split(":") for line in open("/proc/self/status"))
    limit = int(status["VmData"].split()[0]) * 1024 + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    pairs = ParallelFiles(folder + "/text.en", folder + "/text.de").read()
    if how == "at once":
        pairs = list(pairs)
    dataset = TokenDataset.build(pairs, WordTokenizer(), folder + "/ids")
    batches = Batches(dataset, tokens_per_batch=8192).epoch(0)
    tokens = sum(b.num_source_tokens + b.num_target_tokens - 2 * b.num_sentences for b in batches)
    print(json.dumps({"pairs": len(dataset), "tokens": tokens}))
    """
)
TESTS = Path(__file__).parent


def build(how: str, folder: Path, megabytes: int) -> subprocess.CompletedProcess[str]:
    """Build a dataset of folder/text.* and pass over it once, with no more memory than given."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *map(str, TESTS.parents[:2])])}
    command = [sys.executable, "-c", PROGRAM, how, str(folder), str(megabytes)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def write_corpus(folder: Path, megabytes: int) -> int:
    """About so many megabytes of line-aligned text, 120 words of 4 bytes a line; the number of pairs."""
    block = "".join(" ".join(str(100 + (7 * row + word) % 900) for word in range(120)) + "\n" for row in range(1_000))
    blocks = megabytes * 2**20 // (2 * len(block))
    for suffix in ("en", "de"):
        with open(folder / f"text.{suffix}", "w", encoding="ascii") as file:
            file.writelines(block for _ in range(blocks))
    return 1_000 * blocks


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux, which limits the memory of data")
@pytest.mark.parametrize(
    ("text_megabytes", "memory_megabytes"), [(20, 4), pytest.param(640, 40, marks=pytest.mark.slow)]
)
def test_a_corpus_several_times_larger_than_memory(tmp_path: Path, text_megabytes: int, memory_megabytes: int) -> None:
    """Text of 5 times the memory or more, ids of twice or more, are built and batched; a list of the pairs fails."""
    num_pairs = write_corpus(tmp_path, text_megabytes)
    streamed = build("as a stream", tmp_path, memory_megabytes)
    assert streamed.stderr == ""
    assert json.loads(streamed.stdout) == {"pairs": num_pairs, "tokens": 240 * num_pairs}
    assert (tmp_path / "ids" / "ids.bin").stat().st_size > 2 * memory_megabytes * 2**20
    at_once = build("at once", tmp_path, memory_megabytes)
    assert "MemoryError" in at_once.stderr
    assert at_once.stdout == ""
