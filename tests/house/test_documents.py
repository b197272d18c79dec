"""The documents: their links lead somewhere, their commands and their Python are right, and README.md stays short.

Documents are all Markdown files of the repository and the prose of the lessons' sources.
"""

import importlib.util
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from torch.distributed.run import get_args_parser as torchrun_parser

import after.command
import course.__main__
import paper.command
from minitransformer.cli import build_parser
from study import command
from study.experiment import Study

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


class Document(NamedTuple):
    """A text in Markdown and the folder that its links start from."""

    name: str
    folder: Path
    text: str

    @property
    def prose(self) -> str:
        """The text without blocks of code."""
        return re.sub(r"^```.*?^```", "", self.text, flags=re.MULTILINE | re.DOTALL)

    def blocks(self, language: str) -> list[str]:
        """Return the contents of its blocks of code."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def documents() -> Iterator[Document]:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in names:
        yield Document(name, (ROOT / name).parent, read(name))
    for path in sorted((ROOT / "lessons/src").glob("*.py")):
        comments = re.findall(r"^# ?(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        yield Document(f"lessons/src/{path.name}", ROOT / "lessons", "\n".join(comments))


DOCUMENTS = {document.name: document for document in documents()}
each_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=list(DOCUMENTS))


# --- Links ----------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors that a code host gives a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", Document("", ROOT, text).prose, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.add(next(name for n in range(99) if (name := f"{anchor}-{n}" if n else anchor) not in found))
    return found


def links(document: Document) -> list[tuple[str, str]]:
    """Return the text that each link shows, and its target."""
    plain = re.sub(r"`[^`]*`", lambda code: re.sub(r"[][]", "", code[0]), document.prose)  # as in kernel[grid](x)
    shown = re.findall(r"\[([^\[\]]*)\]\(([^()\s]+)\)", plain)
    hidden = re.findall(r'\]\(([^()\s]+)\)|(?:src|href)="([^"]+)"', plain)
    return [*shown, *(("", first or second) for first, second in hidden)]


def dead(document: Document) -> list[str]:
    """Links to files, headings or lines that are not there."""
    found = []
    for shown, target in links(document):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        path = document.folder / name if name else document.folder / Path(document.name).name
        if not path.exists() or not path.resolve().is_relative_to(ROOT):
            found.append(target)
        elif line := re.fullmatch(r"L(\d+)", anchor):  # of a function: `name`
            lines = ["", *path.read_text(encoding="utf-8").splitlines()]
            if shown and f"def {shown.strip('`')}(" not in "".join(lines[int(line[1]) : int(line[1]) + 1]):
                found.append(target)
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(target)
    return found


# Pages of the site stand elsewhere: `make site` follows their links.
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if not name.startswith("lessons/site/")])
def test_links_lead_somewhere(name: str):
    document = DOCUMENTS[name]
    assert not dead(document)


def test_a_dead_link_is_found():
    def made_up(text: str) -> list[str]:
        return dead(Document("README.md", ROOT, text))

    assert (
        made_up("[a](nowhere.py) [`b`](README.md#nowhere) `kernel[grid](x)`") == ["nowhere.py", "README.md#nowhere"] * 2
    )
    assert made_up("[`softmax_forward`](minitransformer/textbook/paper.py#L1)") == [
        "minitransformer/textbook/paper.py#L1"
    ]
    assert made_up('<img src="gone.png"> [![x](LICENSE)](../outside.md)') == ["gone.png", "../outside.md"]
    assert anchors("# The paper's `ops`, §2\n## A\n## A\n```\n# no heading\n```\n") == {"the-papers-ops-2", "a", "a-1"}


# --- Commands -------------------------------------------------------------------------------------------------


def commands(document: Document) -> Iterator[list[str]]:
    """The words of each command: the lines of its blocks for a shell, and those that stand between words."""
    lines = "".join(document.blocks("bash")).replace("\\\n", " ").splitlines()
    programs = "make|python|pip|pipx|uvx|torchrun|minitransformer"
    inline = re.findall(rf"(?<!`)`((?:\w+=\S+ )*(?:{programs})\s[^`]+)`", document.prose)
    for line in [*lines, *(" ".join(each.split()) for each in inline)]:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|><&;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not re.fullmatch(r"[|&;]+", word):
                words.append(word)
                continue
            words = words[: words.index(">")] if ">" in words else words
            while words and re.match(r"\w+=", words[0]):  # a variable of the shell's
                del words[0]
            if words:
                yield words
            words = []


def check_study(study: Study) -> Callable[[list[str]], object]:
    def check(words: list[str]) -> None:
        assert set(command.build_parser(study).parse(words).experiments) <= set(study.experiments)

    return check


MODULES: dict[str, Callable[[list[str]], object]] = {
    "minitransformer": lambda words: build_parser().parse(words),
    "paper": check_study(paper.command.STUDY),
    "after": check_study(after.command.STUDY),
    "course": lambda words: course.__main__.build_parser().parse(words),
}


def check_module(name: str, *words: str) -> None:
    assert importlib.util.find_spec(name), f"there is no module {name}"
    if name in MODULES and "--help" not in words:
        MODULES[name](list(words))


def check_make(*words: str) -> None:
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    assert {word for word in words if "=" not in word} <= set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    assert all(f"$({name})" in MAKEFILE for name in variables), f"no such variable: {variables}"
    for word in {*words} & {"paper", "after"}:
        MODULES[word](shlex.split(variables.get("ARGS", "")))


def check_python(*words: str) -> None:
    if words[:1] == ("-m",):
        check_module(*words[1:])
    else:
        assert (ROOT / words[0]).exists()


def check_pip(*words: str) -> None:
    assert words[0] == "install"
    assert {name for word in words if (extra := re.search(r"\[(\w+)\]", word)) for name in [extra[1]]} <= set(EXTRAS)
    assert {word for word in words if "==" in word} <= set(CONSTRAINTS)


def check_torchrun(*words: str) -> None:
    parsed = torchrun_parser().parse_args(words)
    assert parsed.module
    check_module(parsed.training_script, *parsed.training_script_args)


def check_docker(*words: str) -> None:
    if "python" in words:
        check_python(*words[words.index("python") + 1 :])


def anything(*_: str) -> None:
    """Take any words: a command of the shell's or of others."""


PROGRAMS: dict[str, Callable[..., None]] = {
    "make": check_make,
    "python": check_python,
    "python3": check_python,
    "pip": check_pip,
    "torchrun": check_torchrun,
    "docker": check_docker,
    "minitransformer": partial(check_module, "minitransformer"),
    "uvx": check_module,
    "pipx": lambda _, *words: check_module(*words),  # pipx run
    **dict.fromkeys(("source", "cd", "zcat", "jupyter", ".ci/run"), anything),
}


@each_document
def test_commands_are_taken(document: Document):
    for words in commands(document):
        program = PROGRAMS.get(words[0].removeprefix(".venv/bin/"))
        assert program, f"unknown program: {shlex.join(words)}"
        try:
            program(*words[1:])
        except (AssertionError, ValueError, SystemExit) as wrong:
            pytest.fail(f"{shlex.join(words)}: {wrong}")


@pytest.mark.parametrize(
    "line",
    [
        "make demos",
        "make demo STEPS=3",
        "make paper ARGS=table9",
        "python -m minitransformer train --no-such-option --out runs/a",
        "python -m minitransformer translate > a.txt",
        "zcat a.gz | python -m minitransformer sing",
        "python -m kernels.nowhere",
        "python tests/nowhere.py",
        "pip install -c constraints.txt torch==1.0",
        "pip install -e '.[nothing]'",
        "torchrun --nproc-per-node 2 -m minitransformer train --no-such-option --out runs/a",
        "tain --steps 3",
    ],
)
def test_a_wrong_command_is_found(line: str):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_commands_are_taken(Document("made up", ROOT, f"```bash\nmake demo    # right\n{line}\n```\n"))


# --- Python ---------------------------------------------------------------------------------------------------

ELSEWHERE = "runs/", '"gpt2"', ".gguf", "cuda", "my_kernel"
"""A block that runs here has none of these: a trained model, a download, a GPU, what the reader has."""

PAGES = [name for name, page in DOCUMENTS.items() if name.endswith(".md") and page.blocks("python")]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_python_do_what_the_page_says(page: str, capsys: pytest.CaptureFixture[str]):
    """A block with a block of text below prints it, or raises an error that says it."""
    pattern = r"^```python\n(.*?)^```\n+(?:```text\n(.*?)^```)?"
    for code, said in re.findall(pattern, DOCUMENTS[page].text, re.MULTILINE | re.DOTALL):
        block = compile(code, page, "exec")
        if any(word in code for word in ELSEWHERE):
            continue
        try:
            exec(block, {})
            printed = capsys.readouterr().out
        except Exception as error:
            if not said:
                raise
            printed = f"{type(error).__name__}: {error}"
        assert said.split() == printed.split()


# --- README.md ------------------------------------------------------------------------------------------------


def numbers(text: str) -> list[str]:
    """The numbers outside code and links that are no years and no parts of names (GPT-2, T5)."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>", " ", Document("", ROOT, text).prose)
    return re.findall(r"(?<![\w-])(?!(?:19|20)\d\d\b)\d[\d.,]*", text)


def test_the_readme_is_short():
    text = read("README.md")
    assert len(text.splitlines()) <= 200
    assert len(text.encode()) <= 16_000
    assert len(numbers(text)) <= 60
    counted = numbers("T5 in 2017: 3 of 1,000 `4` [5](6) <img width=7> GPT-2 0.8\n```text\n9\n```\n")
    assert counted == ["3", "1,000", "5", "0.8"]


def test_the_readme_says_what_was_measured():
    """Its ratios are those of the tables, and its excerpts those of the pages that they were taken from."""
    readme = read("README.md")

    def row(page: str, head: str) -> list[str]:
        return next(line for line in read(page).splitlines() if line.startswith(f"| {head}")).split(" | ")

    eager, ours = (float(row("kernels/README.md", head)[1]) for head in ("PyTorch eager", "+ CUDA graph"))
    races = {"B: the paper's base": 4, "the course's, 1,000 sentences, greedy": 3}
    ratios = [row("tests/benchmarks/README.md", head)[place].split()[0] for head, place in races.items()]
    assert re.findall(r"^\| .+ \| ([\d.]+) \|$", readme, re.MULTILINE) == [f"{eager / ours:.2f}", *ratios]

    demo, proof, _ = DOCUMENTS["README.md"].blocks("text")
    assert set(demo.splitlines()) <= set(read("minitransformer/cli/README.md").splitlines())
    assert set(proof.splitlines()) <= set(read("tests/README.md").splitlines())
