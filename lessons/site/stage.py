"""`python lessons/site/stage.py FOLDER`: put the site's pages together, as Sphinx reads them.

The folder mirrors the repository, so that a link between two of its documents is right there too. At its top lies what
stands here, `files` is copied into the site as it is, and `vendored` holds what pages load.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from minitransformer import __version__

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
DOCUMENTS = (
    "README.md",
    ".github/CONTRIBUTING.md",
    "kernels/**/*.md",
    "lessons/*.ipynb",
    "lessons/*.md",
    "lessons/after/*.md",
    "lessons/paper/*.md",
    "minitransformer/README.md",
    "minitransformer/*/README.md",
    "tests/README.md",
    "tests/benchmarks/*.md",
)
PICTURES = (
    ".github/pictures/*",
    "kernels/results/*.png",
    "lessons/pictures/*",
    "lessons/*/pictures/**/*.png",
    "tests/benchmarks/results/*.png",
)
FILES = (".github/pictures/attention.png", "lessons/cheat-sheet*", "build/explorer.html")
OWN = ("*.md", "lessons/*.md", "reference/**/*.md", "tour/**/*.md")
VENDORED = {
    ".": ("katex/dist/katex.min.css", "@popperjs/core/dist/umd/popper.min.js", "tippy.js/dist/tippy-bundle.umd.min.js"),
    "fonts": ("katex/dist/fonts/*.woff2",),
}
ADDRESS = os.environ.get("URL", "").rstrip("/")
MOVED = {
    "FROM/WHEEL": f"{ADDRESS}/run/pypi/WHEEL" if ADDRESS else "./WHEEL",
    "WHEEL": f"minitransformer-{__version__}-py3-none-any.whl",
    ".github/": "github/",  # hosts of pages leave out folders whose names begin with a dot
    r"src=\"runs/explorer.html": r"loading=\"lazy\" src=\"../explorer.html",  # the page that lesson 00 shows
    "build/explorer.html": "explorer.html",
    "(site/lessons/": "(",
}


def move(text: str) -> str:
    """Return a text with the places on the site of what lies elsewhere in the repository."""
    for old, new in MOVED.items():
        text = text.replace(old, new)
    return text


def relink(page: str) -> str:
    """Return a page of HTML with the site's icon, whose links lead to pages of the site."""
    page = page.replace("<title>", '<link rel="icon" href="../_static/icon.svg">\n<title>', 1)
    page = re.sub(r'href="(\d\d_\w+)\.ipynb"', r'href="\1.html"', page)
    return re.sub(r'href="\.\./(minitransformer/[^"]+)"', r'href="../source/\1.html"', page)


def staged() -> Iterator[tuple[str, bytes]]:
    """Yield each file's place in the folder, and its content."""
    for folder, patterns in {ROOT: DOCUMENTS, SITE: OWN}.items():
        for path in (found for pattern in patterns for found in folder.glob(pattern)):
            yield move(path.relative_to(folder).as_posix()), move(path.read_text("utf-8")).encode("utf-8")
    for place, patterns in {"": PICTURES, "files/": FILES}.items():
        for path in (found for pattern in patterns for found in ROOT.glob(pattern)):
            content = path.read_bytes()
            if path.name == "cheat-sheet.html":
                content = relink(content.decode("utf-8")).encode("utf-8")
            yield place + move(path.relative_to(ROOT).as_posix()), content
    for place, patterns in VENDORED.items():
        for path in (found for pattern in patterns for found in (SITE / "node_modules").glob(pattern)):
            yield f"vendored/{place}/{path.name}", path.read_bytes()


def stage(folder: Path) -> None:
    """Write what has changed, so that Sphinx reads only this again, and remove what is gone."""
    files = {folder / name: content for name, content in staged()}
    for path in folder.rglob("*"):
        if path.is_file() and path not in files:
            path.unlink()
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
