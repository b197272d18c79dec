"""Tests in Chromium, which Node runs: what they need, and how they are run."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

MUST = "MINITRANSFORMER_BROWSER"
"""With this variable set what is missing is an error, not a reason to skip."""

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
INSTALLED = Path(__file__).parents[2] / "minitransformer/explorer/node_modules/playwright-core"
NEEDS = {
    "Node (nodejs.org)": shutil.which("node"),
    "Chromium (a system's package chromium)": CHROMIUM,
    "what `make page` installs": INSTALLED.exists(),
}


def marks(needs: dict[str, Any]) -> list[pytest.MarkDecorator]:
    """Return the marks of slow tests that are skipped where something is missing, unless `MUST` is set."""
    missing = not all(needs.values()) and MUST not in os.environ
    return [pytest.mark.slow, pytest.mark.skipif(missing, reason=f"not on this machine: {', '.join(absent(needs))}")]


def absent(needs: dict[str, Any]) -> list[str]:
    """Return the names of what is missing."""
    return [name for name, there in needs.items() if not there]


def run_in_a_browser(script: Path, **variables: str) -> None:
    """Assert that the tests of a script pass, with these variables in its environment."""
    environment = {**os.environ, "CHROMIUM": CHROMIUM or "", **variables}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:  # a pipe would stay open as long as any browser lives
        command = ["node", "--test", "--test-reporter=spec", script]
        status = subprocess.run(command, env=environment, stdout=said, stderr=said, timeout=900).returncode
        said.seek(0)
        assert status == 0, said.read()
