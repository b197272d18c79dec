"""A lesson that runs in a browser: Jupyter's stop button, and the learner's answers to take away.

Python runs there in a worker, which hears nothing while it computes, and hosts of pages do not allow the memory that a
worker could share with its page. But it can read the notebooks' files, which the page serves. So the page writes a file
`stop` when the button is pressed, and Pyodide, which looks for an interrupt as it goes, finds it there.
"""

import base64
import io
import zipfile
from importlib import import_module
from pathlib import Path

from . import answers

WORKER = """
(files, path) => {
  let asked = 0;
  return {
    get 0() {
      if (Date.now() - asked < 1000) return 0;
      asked = Date.now();
      try {
        files.unlink(path);
        return 2; // SIGINT
      } catch {
        return 0;
      }
    },
    set 0(value) {},
  };
}
"""
PAGE = """
if (!window.stops) {
  window.stops = true;
  const { commands, serviceManager, shell } = window.jupyterapp;
  commands.commandExecuted.connect((_, { id }) => {
    const kernel = shell.currentWidget?.sessionContext?.session?.kernel;
    if (!id.includes("interrupt") || kernel?.status !== "busy") return;
    serviceManager.contents.save("stop", { type: "file", format: "text", content: "" });
    const forget = (_, status) => {
      if (status === "busy") return;
      kernel.statusChanged.disconnect(forget);
      serviceManager.contents.delete("stop").catch(() => {}); // the cell ended of itself
    };
    kernel.statusChanged.connect(forget);
  });
}
"""


def enable_stop() -> None:
    """Let Jupyter's button, and its command "interrupt", stop a cell: it raises `KeyboardInterrupt` in a second."""
    from IPython.display import Javascript, display

    pyodide = import_module("pyodide_js")
    buffer = import_module("pyodide.code").run_js(WORKER)(pyodide.FS, "/drive/stop")
    pyodide.setInterruptBuffer(buffer)
    display(Javascript(PAGE))


def download() -> None:
    """Show a link that saves the answers that are right, as a zip."""
    from IPython.display import HTML, display

    folder, packed = answers.folder(), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*.py")):
            archive.write(path, Path("answers", path.relative_to(folder)))
    data = base64.b64encode(packed.getvalue()).decode()
    display(HTML(f'<a download="answers.zip" href="data:application/zip;base64,{data}">Save your answers</a>'))
