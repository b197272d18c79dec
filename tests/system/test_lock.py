"""The lock of a folder: one at a time, told by whom, gone with its holder, and no trace of it left."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.folders import largest_file

from minitransformer.system import lock
from minitransformer.system.lock import LOCK_NAME, locked

HOLDER = (
    "import sys\nfrom minitransformer.system.lock import locked\nwith locked(sys.argv[1]): print(flush=True); input()"
)


def hold(folder: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until it gets a line, or is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), "it's me"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"
    return process


def take(folder: Path) -> None:
    with locked(folder):
        pass


@pytest.mark.parametrize("ending", ["in peace", "killed"])
def test_another_process_is_kept_out_and_told_by_whom_until_the_holder_ends(tmp_path: Path, ending: str) -> None:
    with hold(tmp_path) as process:
        told = re.escape(f"{tmp_path} is in use by process {process.pid} since {time.strftime('%Y-')}")
        command = re.escape(f"""(-c {tmp_path} 'it'"'"'s me')""")
        advice = "wait until it has ended, or choose another folder"
        for _ in range(2):
            with pytest.raises(BlockingIOError, match=rf"^{told}\d\d-\d\d \d\d:\d\d:\d\d {command}: {advice}$"):
                take(tmp_path)
        if ending == "killed":
            process.send_signal(signal.SIGKILL)
        else:
            process.communicate("\n")
        process.wait()
    assert (tmp_path / LOCK_NAME).exists() == (ending == "killed")
    take(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_thread_that_holds_it_may_take_it_again_and_no_other(tmp_path: Path) -> None:
    with locked(tmp_path), ThreadPoolExecutor() as others:
        take(tmp_path / "." / ".." / tmp_path.name)
        with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} since"):
            others.submit(take, tmp_path).result()
        assert (tmp_path / LOCK_NAME).exists()
    take(tmp_path)


def test_no_two_are_ever_inside(tmp_path: Path) -> None:
    inside: list[int] = []

    def come_and_go(number: int) -> int:
        entered = 0
        while entered < 50:
            try:
                with locked(tmp_path):
                    inside.append(number)
                    assert inside == [number]
                    inside.remove(number)
                    entered += 1
            except BlockingIOError:
                time.sleep(0.0001)
        return entered

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(come_and_go, range(4))) == 4 * [50]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_it_goes_if_it_stays_empty(tmp_path: Path) -> None:
    take(tmp_path / "a" / "b")
    assert not (tmp_path / "a" / "b").exists()
    with locked(tmp_path / "c"):
        (tmp_path / "c" / "file").touch()
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["file"]
    (tmp_path / "d").mkdir()
    take(tmp_path / "d")
    assert (tmp_path / "d").is_dir()


@pytest.mark.parametrize("content", [b"mine", b"\xff\xfe", b"\0"])
def test_a_stranger_s_file_of_its_name_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "thesis").write_bytes(content)
    (tmp_path / LOCK_NAME).symlink_to("thesis")
    with pytest.raises(FileExistsError, match=f"{LOCK_NAME} is not a lock of this program: move it elsewhere"):
        take(tmp_path)
    assert (tmp_path / "thesis").read_bytes() == content
    (tmp_path / LOCK_NAME).unlink()
    take(tmp_path)


def test_where_there_are_no_locks_this_is_said_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock, "_lock", no_locks)
    with pytest.warns(UserWarning, match=f"{LOCK_NAME}: .*; nothing keeps a second process out"):
        take(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_does_not_matter(tmp_path: Path) -> None:
    with largest_file(0):
        take(tmp_path)
        assert list(tmp_path.iterdir()) == []  # it is given back all the same
