"""A class that was invented: learners with good, odd and evil notebooks, each with the marks that they must get."""

import json
import os
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.sources import defined_functions, is_exercise, notebook_json, number_of, solutions, sources

Cells = list[dict[str, Any]]
SOLVED: dict[str, str] = dict.fromkeys(
    ("attention", "attention_backward", "causal_mask", "moved_by", "masked_softmax"), "correct"
)
STUBS: dict[str, str] = dict.fromkeys(SOLVED, "not yet")
MASK = solutions("04")["causal_mask"]
"""The answer that most learners give, and the evil ones nearly: it is short."""


@dataclass
class Learner:
    """The files that a learner hands in, and the marks; what is not in `marks` is "not yet" in lesson 04."""

    name: str
    files: dict[str, Any] = field(default_factory=dict)
    """By the path in the class's folder: what is in it, or what makes it."""
    marks: dict[str, str] = field(default_factory=dict)
    says: str = ""
    """Words of what is printed about this learner."""
    lesson: str = "04"

    def expected(self) -> dict[str, str]:
        return (STUBS if self.lesson == "04" else {}) | self.marks


def notebook(*cells: str, lesson: str = "04", answers: dict[str, str] | None = None, change: Any = None) -> bytes:
    """A lesson's notebook as a file: stubs replaced by these answers, and more cells of code at its end."""
    source = next(source for source in sources() if number_of(source) == lesson)
    content = notebook_json(source)
    for cell in filter(is_exercise, content["cells"]):
        answered = [answers[name] for name in defined_functions(cell["source"]) if answers and name in answers]
        cell["source"] = "\n\n\n".join(answered) or cell["source"]
    content["cells"] += [code(cell) for cell in cells]
    if change:
        change(content)
    return json.dumps(content).encode()


def code(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}


def all_solved(lesson: str) -> bytes:
    return notebook(lesson=lesson, answers=solutions(lesson))


def mask_after(line: str, imports: str = "") -> str:
    """A right `causal_mask` that does something else first."""
    head, _, rest = MASK.partition("\n")
    return f"{imports}\n{head}\n    {line}\n{rest}"


def alone(name: str, text: str, state: str, says: str = "", mark: str = "causal_mask") -> Learner:
    """A learner who answers one exercise with a cell at the end."""
    return Learner(name, {f"{name}/04_attention.ipynb": notebook(text)}, {mark: state}, says)


def of_files(name: str, content: Any, marks: dict[str, str], says: str = "", file: str = "") -> Learner:
    return Learner(name, {file or f"{name}/04_attention.ipynb": content}, marks, says)


def _at(seconds: float, content: bytes) -> Callable[[Path], None]:
    """A file that was changed at this time."""

    def make(path: Path) -> None:
        path.write_bytes(content)
        os.utime(path, (seconds, seconds))

    return make


def _huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(70_000_000)


def _in_prose(content: dict[str, Any]) -> None:
    content["cells"].append({"cell_type": "markdown", "metadata": {}, "source": MASK})
    for cell in filter(is_exercise, content["cells"]):
        if "def causal_mask" in cell["source"]:
            cell["source"] = ""


def _on_top(content: dict[str, Any]) -> None:
    content["cells"].insert(0, code(f"import numpy as np\n{MASK}"))


def _head_alone(content: dict[str, Any]) -> None:
    del content["cells"][1:]


def _full_of_other_things(content: dict[str, Any]) -> None:
    content["cells"] += [None, 7, {}, {"source": 7}, {"source": [7, None]}, {"metadata": [], "source": "\ud800 \0"}]
    content["metadata"] = []
    content["nbformat"] = "ninety"


def _without_title(content: dict[str, Any]) -> None:
    del content["cells"][0]


def _windows(content: bytes) -> bytes:
    pretty = json.dumps(json.loads(content), indent=1).encode()
    return b"\xef\xbb\xbf" + pretty.replace(b"\\n", b"\\r\\n").replace(b"\n", b"\r\n")


HELPED = """\
import numpy as np
LIMIT, table = 0, {}
def places(count, first=0):
    return np.arange(first, first + count)
rows = []"""
HELPER = """\
class Comparing:
    def __init__(self, keys):
        self.keys = keys
    def __call__(self, query):
        return self.keys <= query
table["shift"] = LIMIT
rows.append(places)"""
WITH_HELPERS = """\
def causal_mask(num_queries, num_keys):
    compare = Comparing(rows[0](num_keys))
    first = num_keys - num_queries + table["shift"]
    seen = [compare(query) for query in places(num_queries, first)]
    return np.array(seen, bool).reshape(num_queries, num_keys)"""
TRANSPOSED = "def causal_mask(a, b):\n    return np.ones((b, a), bool)"
UNSPLIT = "def split_heads(x, num_heads):\n    return x"

ACCENTED = "Zoë Müller"
BY_PARTS = solutions("05")["self_attention"]
FORGING = """for number in range(3, 100):
        try: os.write(number, b'[1, 2, 3]\\n')
        except OSError: pass
    os._exit(0)"""
INSTALLS = """\
if "google.colab" in sys.modules:
    !pip install numpy
files = !ls
np.where?
await asyncio.sleep(0)"""
FLOOD = """while True:
        for number in range(3, 100):
            try: os.write(number, bytes(100_000))
            except OSError: pass"""
NESTS = "for _ in range(99): os.mkdir('d'); os.chdir('d')"
STAYS = "subprocess.Popen(['sleep', '98765'], start_new_session=True)"
REFUSED = "it raises "
MUTE = "class Mute(Exception):\n    def __str__(self): return 1 / 0\n"
SPIN = "def spin():\n    while True: pass"
FILLED = """\
seen = np.zeros((99, 99), bool)
def fill(table):
    for position in range(-50, 49): table[50 + position, :max(0, position + 1)] = True
fill(seen)
np.save('/nowhere/seen', seen)
def causal_mask(num_queries, num_keys):
    return seen[50 + num_keys - num_queries : 50 + num_keys, :num_keys]"""
TERMS = f"x = check({'+'.join('1' * 900)})\ny = a{'.b' * 900}()\n{MASK}"
UNCLOSED = "def causal_mask(a, b):\n    return ("


def learners(victim: Path, port: int = 9, stranger: int = 2**22) -> list[Learner]:
    """Thirty and more; what is evil is aimed at a folder of somebody else's files, a server's port and a process."""
    right, unreadable = {"causal_mask": "correct"}, {"causal_mask": "unreadable"}
    file = f"{victim}/file"
    evil = [
        ("exits", mask_after("sys.exit(0)", "import sys"), "wrong", "ends the whole session"),
        ("leaves", mask_after("os._exit(0)", "import os"), "stopped", "it ends Python itself"),
        ("interrupts", mask_after("raise KeyboardInterrupt"), "wrong", "it raises KeyboardInterrupt"),
        ("crashes", mask_after("faulthandler._sigsegv()", "import faulthandler"), "stopped", "Segmentation fault"),
        ("ends by signal 40", mask_after("os.kill(os.getpid(), 40)", "import os"), "stopped", "(Real-time signal 6)"),
        ("recurses", mask_after("causal_mask(num_queries, num_keys)"), "wrong", "it calls itself without end"),
        ("eats", mask_after("np.ones(10**11)"), "stopped", "more memory than"),
        ("calls C", mask_after("ctypes.CDLL(None).abort()", "import ctypes"), "stopped", "Aborted"),
        ("prints", mask_after("print('spam' * 5_000_000)"), "correct", ""),
        ("draws", mask_after(r"print('\x1b[2Jevil'); os.write(2, b'\x1b[2Jevil')", "import os"), "correct", ""),
        ("colours", mask_after(r"raise ValueError('\x1b[31mred')"), "wrong", r"\x1b[31mred"),
        ("forges", mask_after(FORGING, "import os"), "stopped", "it writes into what it does not own"),
        ("forges deeper", mask_after(FORGING.replace("[1, 2, 3]", "[" * 10_000), "import os"), "stopped", "it writes"),
        ("floods", mask_after(FLOOD, "import os"), "stopped", "it writes into what it does not own"),
        ("nests", mask_after(NESTS, "import os"), "correct", ""),
        ("stays", mask_after(STAYS, "import subprocess"), "correct", ""),
        ("says nothing", f"{MUTE}{mask_after('raise Mute')}", "wrong", "it raises Mute; line"),
        ("is silent", f"{MUTE.replace('Exc', 'BaseExc')}{mask_after('raise Mute')}", "wrong", "it raises Mute"),
        ("spins", mask_after("threading.Thread(target=spin).start()", f"import threading\n{SPIN}"), "correct", ""),
        ("uses a folder", mask_after("t.TemporaryDirectory().cleanup()", "import tempfile as t"), "correct", ""),
        ("uses a file", mask_after("open('mine', 'w').write('x'); os.remove('mine')", "import os"), "correct", ""),
        ("closes", mask_after("os.closerange(0, 100)", "import os"), "stopped", ""),
    ]  # fmt: skip
    refused = [
        ("kills", "os.kill(os.getppid(), 9)"),
        ("ends a stranger", f"os.kill({stranger}, 9)"),
        ("phones", f"__import__('socket').create_connection(('127.0.0.1', {port})).sendall(b'text')"),
        ("listens", "__import__('socket').create_server(('127.0.0.1', 0))"),
        ("deletes", f"__import__('shutil').rmtree({str(victim)!r})"),
        ("unlinks", f"os.unlink({file!r})"),
        ("moves", f"os.rename({file!r}, 'mine')"),
        ("writes", f"open({file!r}, 'w')"),
        ("cuts", f"os.truncate({file!r}, 0)"),
        ("links", f"os.link({file!r}, 'file'); open('file', 'w')"),
        ("follows a link", f"os.symlink({str(victim)!r}, 'mine'); open('mine/file', 'a')"),
        ("is elsewhere", f"here = os.getcwd(); os.chdir('/'); os.rmdir(here); os.symlink({str(victim)!r}, here)"),
    ]
    around = f"import subprocess; subprocess.check_call(['rm', {file!r}])"
    evil += [("goes around Python", mask_after(around), "wrong", "it raises CalledProcessError")]
    evil += [(name, mask_after(line, "import os"), "wrong", REFUSED) for name, line in refused]
    good = [
        of_files("ada", all_solved("04"), SOLVED),
        Learner("bob", {"bob_04_attention.ipynb": notebook()}, {}),
        Learner("grace", {"grace/week 2/04_attention.ipynb": notebook(HELPED, HELPER, WITH_HELPERS)}, right),
        of_files("in the cell", notebook(answers={"causal_mask": MASK}), right),
        of_files("stub below", notebook(MASK, "def causal_mask(a, b):\n    raise NotImplementedError"), {}),
        of_files("course's stub below", notebook(change=_on_top), right),
        of_files("transposed", notebook(TRANSPOSED), {"causal_mask": "wrong"}, "the rows see"),
        of_files("times", notebook(f"%%time\n!ls\n{MASK}"), right),
        of_files("asks", notebook(f"{INSTALLS}\n{MASK}"), right),
        of_files("fills a table", notebook(FILLED), right),
        of_files("thousands", notebook(TERMS), right),
        of_files("no Python elsewhere", notebook("for (", MASK), right),
        Learner(
            "splits",
            {"splits/05_multi_head.ipynb": notebook(lesson="05", answers=solutions("05") | {"split_heads": UNSPLIT})},
            dict.fromkeys(("merge_heads", "self_attention", "self_attention_backward"), "correct")
            | {"split_heads": "wrong"},
            lesson="05",
        ),
        Learner(
            "later",
            {"later/05_multi_head.ipynb": notebook(lesson="05", answers={"self_attention": BY_PARTS})},
            dict.fromkeys(("split_heads", "merge_heads", "self_attention_backward"), "not yet")
            | {"self_attention": "correct"},
            lesson="05",
        ),
        of_files("odd cells", notebook(MASK, change=_full_of_other_things), right),
        of_files("windows", _windows(notebook(MASK)), right),
        of_files(ACCENTED, notebook(MASK), right, file=f"{unicodedata.normalize('NFD', ACCENTED)}/04_attention.ipynb"),
        of_files(r"esc\x1b[2J", notebook(MASK), right, file="esc\x1b[2J_04_attention.ipynb"),
        of_files("homework", notebook(MASK), right, file="homework.ipynb"),
        of_files("untitled", notebook(MASK, change=_without_title), right, file="untitled/my work.ipynb"),
        Learner(
            "twice",
            {
                "twice/04_attention.ipynb": _at(2e9, notebook(MASK)),
                "twice/04_attention (1).ipynb": _at(1e9, notebook()),
            },
            right,
            "twice/04_attention (1).ipynb is older: twice/04_attention.ipynb counts",
        ),
        Learner(
            "twice, broken",
            {
                "twice, broken/04_attention.ipynb": _at(1e9, notebook(MASK)),
                "twice, broken/04_attention-Copy1.ipynb": _at(2e9, b"x"),
            },
            right,
            "twice, broken/04_attention.ipynb counts",
        ),
    ]
    odd = [
        of_files("no Python", notebook(answers={"causal_mask": UNCLOSED}), unreadable, "is not Python (line 2: "),
        of_files("in prose", notebook(change=_in_prose), unreadable, "in a cell of text"),
        of_files("a head", notebook(change=_head_alone), dict.fromkeys(STUBS, "missing")),
        alone("needs an error", f"step = 1 / 0\n{mask_after('step')}", "wrong", "needs raises ZeroDivisionError"),
        of_files("a folder", lambda path: path.mkdir(), dict.fromkeys(STUBS, "missing")),
        *(
            of_files(name, content, dict.fromkeys(STUBS, "unreadable"), says)
            for name, content, says in [
                ("not JSON", b'{"cells": [', "is no notebook: its line 1 is not JSON"),
                ("empty", b"", "is empty"),
                ("binary", bytes(range(256)) * 40, "is no notebook"),
                ("deep", b"[" * 200_000, "is no notebook"),
                ("third", b'{"nbformat": 3, "worksheets": [{"cells": []}]}', "it has no list of cells"),
                ("huge", _huge, "is larger than any notebook of the course (70,000,000 bytes)"),
                ("wordy", notebook("x = 1\n" * 200_000), "has more code than any notebook"),
                ("loop", lambda path: path.symlink_to(path), "is a link, which is not followed"),
                ("pipe", os.mkfifo, "is no ordinary file"),
            ]
        ),
    ]
    return [
        *good,
        *odd,
        *(alone(name, text, state, says) for name, text, state, says in evil),
    ]


def write(folder: Path, learners: list[Learner]) -> None:
    """Write what they hand in."""
    for learner in learners:
        for name, content in learner.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content)


def hand_in(folder: Path, learners: list[Learner]) -> None:
    """Write what they hand in, and what else lies in such folders."""
    write(folder, learners)
    (folder / "ada" / ".ipynb_checkpoints").mkdir()
    (folder / "ada" / ".ipynb_checkpoints" / "04_attention-checkpoint.ipynb").write_bytes(b"x")
    (folder / "ada" / "notes.txt").write_text("no notebook")
    (folder / "round").symlink_to(folder, target_is_directory=True)
    for name in ("week1/ada/", "week1/ben/", "week2/ada_", "week2/ben_", "week3/", "week3/new/"):
        path = folder / f"{name}04_attention.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(notebook())
        os.utime(path, (1e9, 1e9))
    (folder / "no notebook").mkdir()
    for name in ("04_attention.ipynb.txt", "04.zip", "a.py", "b.py", ".DS_Store"):
        (folder / "no notebook" / name).touch()
    (folder / "nothing").mkdir()
    (folder / "shopping.ipynb").write_text('{"cells": []}')


def small_class() -> Learner:
    """The files of the class whose marks `lessons/teaching.md` shows, as one learner's."""
    answers = solutions("04")
    unscaled = answers["attention"].replace(" / math.sqrt(query.shape[-1])", "")
    assert unscaled != answers["attention"]
    large = mask_after("every = np.zeros((10**7, 10**7))")
    cut = answers["attention_backward"].partition("return")[0] + "return (dquery, dkey"
    files = {
        "ada/01_softmax.ipynb": all_solved("01"),
        "ada/04_attention.ipynb": all_solved("04"),
        "ben/01_softmax.ipynb": notebook(lesson="01"),
        "ben/04_attention.ipynb": notebook(answers=answers | {"attention": unscaled, "attention_backward": cut}),
        "chen_04_attention.ipynb": notebook(answers={"attention": answers["attention"], "causal_mask": large}),
        "dora/04_attention.ipynb": notebook()[:5_000],
    }
    return Learner("all", files)
