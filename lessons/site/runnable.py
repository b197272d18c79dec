"""`python lessons/site/runnable.py WHEELS FOLDER SITE`: the lessons as visitors run them, in a browser or elsewhere.

Each has a first cell that gets the package, and the course from `course.zip` beside it. JupyterLite's program makes
pages of them; on Colab and Kaggle the same cell takes both from the site's address, `URL`.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath

import nbformat

LESSONS = Path(__file__).resolve().parents[1]
UNREAD = {"__pycache__", "answers", "node_modules", "pictures", "runs", "site"}, {".ipynb", ".pdf"}
"""Folders and types of files that no lesson reads."""
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "appName": "minitransformer",
        "exposeAppInBrowser": True,  # course/browser.py listens to the stop button
        "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": {"disablePyPIFallback": True}},
    },
}
FIRST = """\
# Run this cell first. It gets the course, in a minute or less. Then go on cell by cell, with Shift+Enter.
import importlib.util

if importlib.util.find_spec("course") is None:
    import os
    import shutil
    import sys

    os.environ["COURSE_ANSWERS"] = os.path.abspath("answers")  # the folder that keeps your right answers
{get}
    shutil.unpack_archive("course.zip", "/tmp/course")
    os.chdir("/tmp/course/lessons")
    sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    if sys.platform == "emscripten":
        from course.browser import enable_stop

        enable_stop()"""
IN_A_BROWSER = """\
    import piplite

    await piplite.install({packages})"""
HOSTED = """\
    if sys.platform == "emscripten":  # in a browser
        import piplite

        await piplite.install({packages})
    else:
        import subprocess
        import urllib.request

        wheel = "{url}run/pypi/{wheel}"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", wheel], check=True)
        urllib.request.urlretrieve("{url}run/files/course.zip", "course.zip")"""
ALSO = {"22": ["scikit-learn"]}
"""What a lesson needs beside what the package does."""
LONG = """\
*The next cell trains. In a browser that takes several times as long as on a computer of your own. The ■ above stops it,
and the model stays as it is then. The result that was recorded stands below the cell until you run it, and [on the
lesson's page]({page}).*"""


def first_code(lesson: str, url: str, wheel: str) -> str:
    """Return the code of a lesson's first cell."""
    packages = json.dumps(["minitransformer", *ALSO.get(lesson, ())])
    return FIRST.format(get=(HOSTED if url else IN_A_BROWSER).format(url=url, wheel=wheel, packages=packages))


def on_site(link: str, url: str) -> str:
    """Return a lesson's link as one to a page of the site; other notebooks are opened beside this one."""
    name, _, anchor = link.partition("#")
    path = normpath(f"lessons/{name}")
    if not name or path.endswith(".ipynb") or not (LESSONS.parent / path).exists():
        return link  # or what only looks like one, in code
    if not path.endswith((".html", ".pdf")):
        folder = (LESSONS.parent / path / "README.md").is_file()
        path = f"{path}/README" if folder else path.removesuffix(".md") if path.endswith(".md") else f"source/{path}"
        path = f"{path.replace('.github/', 'github/')}.html"
    return f"{url or '../../'}{path}" + (f"#{anchor.replace('L', 'L-')}" if anchor else "")


def runnable(path: Path, url: str, wheel: str) -> nbformat.NotebookNode:
    """Return a lesson's notebook with the first cell, and with a remark above each cell that trains for long."""
    notebook, root, cells = nbformat.read(path, 4), url or "../../", []
    for cell in notebook.cells:
        if "long" in cell.metadata.get("tags", []):
            page = f"{root}lessons/{path.stem}.html"
            cells.append(nbformat.v4.new_markdown_cell(LONG.format(page=page), id=f"{cell.id}-long"))
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"(?<=\]\()[^)\s]+", lambda found: on_site(found[0], url), cell.source)
        cell.source = cell.source.replace('src="runs/explorer.html"', f'src="{root}explorer.html"')
        cells.append(cell)
    cells.insert(1, nbformat.v4.new_code_cell(first_code(path.name[:2], url, wheel), id="first"))
    notebook.cells = cells
    return notebook


def course() -> Iterator[Path]:
    """Yield the files that a running lesson may read."""
    folders, types = UNREAD
    for folder, inside, names in os.walk(LESSONS):
        inside[:] = sorted(set(inside) - folders)
        yield from (Path(folder, name) for name in sorted(names) if Path(name).suffix not in types)


def write(wheels: Path, folder: Path, url: str) -> None:
    """Write the settings of JupyterLite and, in `lessons`, the notebooks with the course beside them."""
    (wheel,) = wheels.glob("minitransformer-*.whl")
    lessons = folder / "lessons"
    lessons.mkdir(parents=True)
    (folder / "jupyter-lite.json").write_text(json.dumps(SETTINGS), "utf-8")
    for path in LESSONS.glob("[0-9][0-9]_*.ipynb"):
        (lessons / path.name).write_text(json.dumps(runnable(path, url, wheel.name), ensure_ascii=False), "utf-8")
    with zipfile.ZipFile(lessons / "course.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in course():
            archive.write(path, path.relative_to(LESSONS.parent))


def main(wheels: Path, folder: Path, site: Path) -> None:
    """Write what JupyterLite reads into a new folder, and its pages into `run` of the site."""
    url = os.environ.get("URL", "").rstrip("/")
    write(wheels, folder, f"{url}/" if url else "")
    command = [sys.executable, "-m", "jupyterlite_core", "build", "--no-sourcemaps", "--contents", "lessons"]
    command += ["--piplite-wheels", wheels.resolve(), "--output-dir", site.resolve() / "run"]
    command += ["--apps", "notebooks", "--apps", "tree"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
