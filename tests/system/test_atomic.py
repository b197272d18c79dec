"""Writing a file: links stay, devices and pipes are written to, and what killed writers left is known by its name."""

import errno
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.folders import contents, largest_file
from support.processes import dead_process

from minitransformer.system.atomic import atomic_write, remove_unfinished

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX (Linux, macOS): its links, pipes and devices")


def write(path: Path, content: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(content)


def run(program: str, *arguments: Path, shell: str = "") -> subprocess.CompletedProcess[str]:
    """A program that has `write`, with what a shell adds to its command."""
    lines = f"from test_atomic import *\npaths = list(map(Path, sys.argv[1:]))\n{program}"
    command = ["bash", "-c", f'"$@" {shell}', "bash", sys.executable, "-c", lines, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link, chained = tmp_path / "there" / "target", tmp_path / "link", tmp_path / "chained"
    target.parent.mkdir()
    target.write_bytes(b"old")
    before = target.stat().st_ino
    link.symlink_to("there/target")
    chained.symlink_to(link)
    write(chained)
    assert link.is_symlink()
    assert chained.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_ino != before  # whole or not at all, as any other
    target.unlink()
    write(link, b"made")
    assert target.read_bytes() == b"made"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["chained", "link", "target", "there"]


def test_links_in_a_circle_are_refused_and_stay(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(OSError, match=f"cannot write {first}: {os.strerror(errno.ELOOP)}"):
        write(first)
    assert first.is_symlink()


def test_a_folder_stays(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot write {tmp_path}: Is a directory"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_under_a_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "deeper" / "a"):
        with pytest.raises(OSError, match=f"^.*cannot write {path}: (Not a directory|File exists)$"):
            write(path)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    write(tmp_path / "a", b"old")
    with largest_file(20_000), pytest.raises(OSError, match=f"cannot write {tmp_path / 'a'}: File too large"):
        write(tmp_path / "a", bytes(100_000))
    assert contents(tmp_path) == {"a": b"old"}


def test_a_device_is_written_to_and_stays() -> None:
    """A terminal: nobody could put a file in its place, as one could in that of /dev/null."""
    ours, theirs = os.openpty()
    write(Path(os.ttyname(theirs)))
    assert os.read(ours, 100) == b"new"
    os.close(ours)
    os.close(theirs)


def test_a_pipe_gets_all_or_nothing(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with suppress(ZeroDivisionError), atomic_write(pipe) as file:
        file.write(b"half")
        raise ZeroDivisionError
    write(pipe)
    reader.join()
    assert got == [b"new"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("shell", ["", "| cat", "> {file}; cat {file}", ">> {file}; cat {file}"])
def test_standard_output_gets_what_is_written_to_it_in_its_place(tmp_path: Path, shell: str) -> None:
    """Through a pipe and in a file, which keeps what was said before and gets what is said after."""
    program = "print('before'); write(Path('/dev/stdout'), b'new\\n'); print('after')"
    said = run(program, shell=shell.format(file=tmp_path / "x"))
    assert (said.stdout, said.stderr) == ("before\nnew\nafter\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["x"] * ("file" in shell)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc/self/fd, as Linux has it")
def test_an_open_file_without_a_name_is_written_to(tmp_path: Path) -> None:
    with open(tmp_path / "gone", "w+b") as file:
        os.unlink(tmp_path / "gone")
        write(Path(f"/proc/self/fd/{file.fileno()}"))
        assert file.read() == b"new"
    assert list(tmp_path.iterdir()) == []


def test_what_dead_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    dead, alive = dead_process(), os.getppid()
    names = [f"a.png.{dead}.tmp", f"a.png.{os.getpid()}.tmp", f"a.png.{alive}.tmp", f"b.png.{dead}.tmp", "a.png.tmp"]
    names += [f"a.png.{10**30}.tmp", "a.png.x.tmp", f"xa.png.{dead}.tmp", "a.png"]
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(tmp_path, r"(a)\.png|c")
    assert {path.name for path in tmp_path.iterdir()} == set(names[2:])
    remove_unfinished(tmp_path / "nowhere", ".*")


def test_an_interrupted_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with suppress(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_s_file_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    program = "with atomic_write(paths[0]) as file:\n    file.write(b'x' * 10**6)\n    os.kill(os.getpid(), 9)"
    killed = run(program, path)
    assert killed.returncode in (-9, 128 + 9)  # some shells become the program that they run last
    assert len(list(tmp_path.iterdir())) == 2
    remove_unfinished(tmp_path, r"a\.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert path.read_bytes() == b"old"
