"""The tile that a kernel takes: by the GPU's kind, by the problem's size, and by measuring."""

import json
from types import SimpleNamespace

import pytest
import torch
from support.kernels.prove_kernel import DEVICE
from triton.runtime.errors import OutOfResources, PTXASError

import kernels
from kernels import tuning
from kernels.attention import host, tiles
from kernels.eager.packed import Packed
from kernels.tuning import KIBIBYTE, Capability, Tile, Tuner, capability, pretending

H100, A100, RTX, T4 = (
    Capability("cuda", arch, kib * KIBIBYTE) for arch, kib in ((90, 227), (80, 163), (89, 99), (75, 64))
)
MI300, RADEON = (Capability("hip", arch, 64 * KIBIBYTE) for arch in ("gfx942", "gfx1100"))


FAST, SLOW, NO_ROOM = Tile(64, 64, 4, 2), Tile(16, 16, 4, 1), Tile(512, 512, 8, 2)


@pytest.fixture
def measured(monkeypatch, tmp_path) -> list[Tile]:
    """The tiles that were measured, in a world with a GPU and an empty cache."""
    tiles_measured = []

    def measure(launch, tile):
        tiles_measured.append(tile)
        launch(tile)
        if tile == NO_ROOM:
            raise OutOfResources(512, 227, "shared memory")
        return {FAST: 1.0, SLOW: 2.0}[tile]

    def cache(digest):
        path = tmp_path / digest
        return SimpleNamespace(
            get_file=lambda name: str(path) if path.exists() else None,
            put=lambda text, name, binary: path.write_text(text),
            lock_path=tmp_path.with_suffix(".lock"),
        )

    monkeypatch.setattr(tuning, "measure", measure)
    monkeypatch.setattr(tuning, "may_tune", lambda: True)
    monkeypatch.setattr(tuning, "get_cache_manager", cache)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    return tiles_measured


def tuner(source: str = "1") -> Tuner:
    return Tuner(SimpleNamespace(__name__="some_kernel", cache_key=source))


def test_each_candidate_is_measured_once_and_the_fastest_taken(measured, capsys):
    launched = []
    choose = tuner()
    for _ in range(2):
        assert choose([SLOW, NO_ROOM, FAST], (torch.float16, "causal"), launched.append) == FAST
    assert measured == launched == [SLOW, NO_ROOM, FAST]
    first, second = capsys.readouterr().err.splitlines()
    assert first == "kernels: tuning some_kernel (float16, causal) over 3 tiles: about 5 s, once"
    assert second.startswith(f"kernels: some_kernel without {NO_ROOM}: OutOfResources: ")


def test_the_only_candidate_is_taken_unmeasured_whatever_was_chosen_before(measured):
    """So that a schedule can be forced after others were tuned."""
    choose = tuner()
    assert choose([SLOW, FAST], ("key",), lambda tile: None) == FAST
    assert choose([SLOW], ("key",), lambda tile: None) == SLOW
    assert measured == [SLOW, FAST]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (RuntimeError("PassManager::run failed"), "RuntimeError: PassManager::run failed"),
        (PTXASError("too many registers\nlog"), "PTXASError: PTXAS error: too many registers"),
        (torch.OutOfMemoryError("no room"), "OutOfMemoryError: no room"),
    ],
    ids=str,
)
def test_a_candidate_that_fails_is_left_out_with_its_reason(measured, capsys, tmp_path, failure, said):
    def launch(tile):
        if tile == FAST:
            raise failure

    assert tuner()([SLOW, FAST], ("key",), launch) == SLOW
    assert capsys.readouterr().err.splitlines()[1] == f"kernels: some_kernel without {FAST}: {said}"
    (record,) = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert record["left out"] == [[*FAST, f"{type(failure).__name__}: {failure}"]]
    measured.clear()
    assert tuner()([SLOW, FAST], ("key",), launch) == SLOW
    assert not measured


def test_what_is_no_failure_of_a_candidate_is_raised(measured):
    def launch(tile):
        raise TypeError("a mistake")

    with pytest.raises(TypeError, match="a mistake"):
        tuner()([SLOW, FAST], ("key",), launch)


def test_where_every_candidate_fails_the_default_is_left_to_say_why(measured):
    def launch(tile):
        raise RuntimeError("no driver")

    assert tuner()([SLOW, FAST], ("key",), launch) == SLOW


@pytest.mark.parametrize(("off", "chosen"), [(0.0, FAST), (0.02, FAST), (0.2, SLOW), (float("nan"), SLOW)])
def test_a_candidate_that_computes_something_else_is_left_out(measured, capsys, off, chosen):
    """Rounding may differ, by a little of the largest number of a row; infinities must be the same."""
    result = torch.empty(2, 4)

    def launch(tile):
        result.copy_(torch.tensor([[1.0, 0.5, 0.0, float("inf")], [0.1, 0.0, 0.0, 0.0]]))
        if tile == FAST:
            result[0, 1] += off

    assert tuner()([SLOW, FAST], ("key",), launch, [result]) == chosen
    assert ("it computes other numbers than the default" in capsys.readouterr().err) == (chosen == SLOW)


def test_a_candidate_that_writes_nothing_is_left_out(measured):
    result = torch.empty(4)

    def launch(tile):
        if tile == SLOW:
            result.fill_(1.0)

    assert tuner()([SLOW, FAST], ("key",), launch, [result]) == SLOW


def test_another_process_remembers_the_choice(measured, tmp_path):
    candidates, launch = [SLOW, FAST], lambda tile: None
    assert tuner()(candidates, ("key",), launch) == FAST
    measured.clear()
    assert tuner()(candidates, ("key",), launch) == FAST
    assert not measured
    assert [json.loads(path.read_text())["tile"] for path in tmp_path.iterdir()] == [list(FAST)]


def test_ranks_on_gpus_of_a_kind_share_one_choice(measured, monkeypatch, tmp_path):
    """The second waits while the first measures, and takes what it has found, on whatever GPU."""
    first, second = (("key", torch.device("cuda", number)) for number in range(2))

    def others_wait(tile):
        with open(lock, "w") as file, pytest.raises(BlockingIOError):
            flock(file, tuning.fcntl.LOCK_SH | tuning.fcntl.LOCK_NB)

    def waited(file, how):
        monkeypatch.setattr(tuning.fcntl, "flock", flock)
        assert tuner()([SLOW, FAST], first, others_wait) == FAST

    flock, lock = tuning.fcntl.flock, tmp_path.with_suffix(".lock")
    monkeypatch.setattr(tuning.fcntl, "flock", waited)
    monkeypatch.setattr(tuning, "measure", lambda launch, tile: launch(tile) or {FAST: 1.0, SLOW: 2.0}[tile])
    assert tuner()([SLOW, FAST], second, lambda tile: pytest.fail("measured again")) == FAST


def test_where_tuning_is_off_the_default_is_taken_whatever_another_process_has_chosen(measured, monkeypatch):
    assert tuner()([SLOW, FAST], ("key",), lambda tile: None) == FAST
    monkeypatch.setattr(tuning, "may_tune", lambda: False)
    assert tuner()([SLOW, FAST], ("key",), lambda tile: None) == SLOW


@pytest.mark.parametrize("changed", ["source", "key", "candidates"])
def test_what_was_measured_for_another_case_does_not_count(measured, changed):
    tuner()([SLOW, FAST], ("key",), lambda tile: None)
    measured.clear()
    source = "2" if changed == "source" else "1"
    key = ("another",) if changed == "key" else ("key",)
    candidates = [SLOW, FAST, NO_ROOM] if changed == "candidates" else [SLOW, FAST]
    tuner(source)(candidates, key, lambda tile: None)
    assert measured == candidates


def test_tuning_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(tuning, "interpreting", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert tuning.may_tune()
    with pretending(H100):
        assert not tuning.may_tune()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not tuning.may_tune()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setenv("MINITRANSFORMER_TUNE", "0")
    assert not tuning.may_tune()


# --- Capabilities and tables ----------------------------------------------------------------------------------


def test_capabilities(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(tuning, "interpreting", lambda: True)
    assert capability(cpu).kind == "interpreter"
    with pretending(T4):
        assert capability(cpu) == T4
    monkeypatch.setattr(tuning, "interpreting", lambda: False)
    with pytest.raises(ValueError, match="cpu"):
        capability(cpu)


@pytest.mark.parametrize(
    ("device", "dtype", "precision", "family"),
    [
        (H100, torch.bfloat16, "ieee", "hopper"),
        (H100, torch.float32, "tf32", "hopper in tf32"),
        (H100, torch.float32, "ieee", "full"),
        (A100, torch.float16, "ieee", "ampere"),
        (RTX, torch.float16, "ieee", "consumer"),
        (Capability("cuda", 120, 99 * KIBIBYTE), torch.float16, "ieee", "consumer"),
        (T4, torch.float16, "ieee", "turing"),
        (T4, torch.float32, "ieee", "turing in float32"),
        (Capability("cuda", 100, 227 * KIBIBYTE), torch.bfloat16, "ieee", "blackwell"),
        (Capability("cuda", 100, 227 * KIBIBYTE), torch.float32, "tf32", "hopper in tf32"),
        (A100, torch.float32, "tf32", "ampere"),
        (MI300, torch.float32, "ieee", "cdna"),
        (RADEON, torch.bfloat16, "ieee", "rdna"),
        (RADEON, torch.float32, "ieee", "rdna in float32"),
        (Capability("interpreter", "", 0), torch.float32, "ieee", "interpreter"),
    ],
)
def test_families(device, dtype, precision, family):
    assert tiles.family(device, dtype, precision) == family


def test_descriptors_are_never_the_default():
    """So that only tuning takes them, which compares what they write with what the default writes."""
    for family, table in tiles.TABLES.items():
        for (name, _), choices in table.items():
            assert not choices[0].descriptors
            assert (name.startswith("forward") and family == "hopper") or not any(tile.descriptors for tile in choices)


@pytest.mark.parametrize("family", [*tiles.TABLES, "interpreter"])
@pytest.mark.parametrize("name", host.TUNERS)
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_pair_of_head_widths_has_tiles(family, name, dropout, itemsize):
    for D, DV in ((1, 1), (16, 16), (32, 32), (40, 72), (80, 80), (128, 64), (16, 256), (256, 256)):
        for tile in tiles.candidates(name, family, D, DV, itemsize, dropout, 227 * KIBIBYTE):
            assert min(tile.rows, tile.columns) >= tiles.SMALLEST
            assert all(number & (number - 1) == 0 for number in tile[:3])
            assert tiles.fitted(tile, family, 10_000, 10_000) == tile


def test_packed_sentences_are_tuned_apart_and_without_descriptors(monkeypatch):
    """A descriptor's block would reach into the next sentence."""
    seen, x = [], torch.zeros(1, 2, 5, 64, dtype=torch.float16, device=DEVICE)
    monkeypatch.setattr(host, "TUNED_FROM", 0)
    monkeypatch.setitem(host.TUNERS, "forward", lambda choices, key, *_: seen.append((choices, key)) or choices[0])
    monkeypatch.setattr(host, "_launch_forward", lambda *_, **__: None)
    starts = torch.tensor([0, 5], dtype=torch.int32, device=DEVICE)
    with pretending(H100):
        for packed in (None, Packed(starts, starts, 5, 5)):
            kernels.attention_forward(x, x, x, packed=packed)
    (choices, key), (of_packed, another) = seen
    assert key != another
    assert of_packed == [tile for tile in choices if not tile.descriptors] != choices


def test_widths_are_padded_to_blocks():
    assert [tiles.whole(width) for width in (1, 16, 17, 40, 72, 256)] == [16, 16, 32, 48, 80, 256]
    blocks = {(1, 1): (16, 16), (40, 72): (64, 128), (16, 256): (128, 256), (256, 1): (256, 128), (64, 64): (64, 64)}
    assert {widths: tiles.blocks_of(*widths) for widths in blocks} == blocks


def test_what_a_kernel_holds_decides():
    def chosen(D, DV, dropout=False, family="ampere"):
        return tiles.candidates("dkey_dvalue", family, D, DV, 2, dropout, 163 * KIBIBYTE)

    table = tiles.TABLES["ampere"]
    assert chosen(64, 64) == chosen(16, 32) == table["dkey_dvalue", 64]
    assert chosen(128, 128) == table["dkey_dvalue", 128]
    assert chosen(64, 128) == chosen(128, 40) == table["dkey_dvalue of unequal widths", 128]
    assert chosen(256, 256) == table["dkey_dvalue", 256] != chosen(256, 256, dropout=True)
    assert chosen(200, 200) == chosen(16, 256) == table["dkey_dvalue with masks", 256] == chosen(256, 256, dropout=True)


def test_tiles_without_room_are_left_out():
    def chosen(kib):
        return tiles.candidates("forward", "hopper", 256, 256, 2, False, kib * KIBIBYTE)

    assert chosen(227) == tiles.TABLES["hopper"]["forward", 256]
    assert chosen(48) == [Tile(64, 32, 4, 2)]
    with pytest.raises(ValueError, match="heads 256 wide need more than this GPU's 16 KiB of shared memory"):
        chosen(16)


@pytest.mark.parametrize(
    ("device", "dtype", "used"),
    [
        (H100, torch.float32, "tf32"),
        (RTX, torch.float32, "tf32"),
        (H100, torch.bfloat16, "ieee"),
        (T4, torch.float32, "ieee"),
        (MI300, torch.float32, "ieee"),
        (RADEON, torch.float32, "ieee"),
    ],
)
def test_tf32_is_used_where_there_is_any(device, dtype, used):
    assert tiles.usable("tf32", device, dtype) == used
    assert tiles.usable("ieee", device, dtype) == "ieee"


@pytest.mark.parametrize(
    ("name", "family", "tile", "width", "found"),
    [
        ("forward", "hopper", (128, 64, 8, 3), 128, {"LEAD": 1, "HOISTED": True}),
        ("forward", "hopper", (64, 64, 4, 3), 64, {"LEAD": 1, "HOISTED": True}),
        ("forward", "hopper", (128, 128, 8, 2), 128, {"LEAD": 0, "HOISTED": False}),
        ("forward", "hopper", (128, 128, 8, 2, True), 128, {"LEAD": 0, "HOISTED": False}),
        ("forward", "hopper", (128, 128, 8, 2, True), 64, {"LEAD": 1, "HOISTED": True}),
        ("forward", "hopper", (128, 32, 8, 3), 256, {"LEAD": 0, "HOISTED": False}),
        ("forward", "ampere", (128, 64, 8, 3), 64, {"LEAD": 0, "HOISTED": False}),
        ("dquery", "hopper", (128, 64, 8, 2), 128, {"HOISTED": True}),
        ("dkey_dvalue", "hopper", (128, 64, 8, 2), 128, {"HOISTED": False}),
    ],
)
def test_what_registers_are_left_for(name, family, tile, width, found):
    assert tiles.schedule(name, family, Tile(*tile), width, width) == found
    assert not tiles.schedule(name, family, Tile(*tile), width, width, bias=True).get("LEAD")
    padded = tiles.schedule(name, family, Tile(*tile), width, width, padding=True)
    assert padded.get("LEAD", 0) == (found.get("LEAD", 0) and Tile(*tile).descriptors)


def test_short_sequences_take_small_tiles():
    tile = Tile(128, 64, 8, 2)
    assert tiles.fitted(tile, "hopper", 1, 1) == Tile(16, 16, 4, 2)
    assert tiles.fitted(tile, "hopper", 33, 17) == Tile(64, 32, 8, 2)
    assert tiles.fitted(tile, "full", 1, 100) == Tile(16, 64, 8, 2)


def test_only_large_problems_are_tuned(monkeypatch):
    tuned = []

    def tune(self, candidates, key, launch, results):
        tuned.append(key)
        return candidates[0]

    monkeypatch.setattr(host, "TUNED_FROM", 20 * 20 * 8)
    monkeypatch.setattr(Tuner, "__call__", tune)
    small, large = (torch.randn(1, 1, length, 4, device=DEVICE) for length in (19, 20))
    host.attention_forward(small, small, small)
    assert not tuned
    host.attention_forward(large, large, large, causal=True)
    padding = torch.ones(1, 20, dtype=torch.bool, device=DEVICE)
    host.attention_forward(large, large, large, causal=True, key_mask=padding)
    assert tuned[0][:5] == (torch.float32, "ieee", "D 4×4", "T 32×32", "causal")
    assert [key[5:7] for key in tuned] == [("no padding", "no dropout"), ("padding", "no dropout")]
