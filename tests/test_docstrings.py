"""What no docstring may do."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", ["minitransformer", "kernels", "lessons", "tests"])
def test_a_docstring_says_what_a_thing_is_and_does_not_begin_with_an_inversion(folder):
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                assert not str(node.value.value).startswith(("Of ", "Whose ", "By how ")), f"{path}:{node.lineno}"
