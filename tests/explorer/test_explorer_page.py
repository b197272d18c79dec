"""The page: its template is in step with its sources, and nothing that it holds of a model can act on it."""

import base64
import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.elements import Elements
from support.explorer_engine import COURSE, EXPLORER, NODE, Course, built_with_npm

from minitransformer import Transformer, TransformerConfig
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.explorer import explore

MOST_BYTES = 4_000_000
TEMPLATE = EXPLORER / "page.html"

needs_npm = pytest.mark.skipif(
    not built_with_npm(),
    reason="`npm ci` in minitransformer/explorer, which installs what builds the page, has not run",
)


def hash_of_sources() -> str:
    """As build.mjs computes it."""
    names = ["build.mjs", "package.json", "package-lock.json"]
    names += [path.relative_to(EXPLORER).as_posix() for path in (EXPLORER / "src").rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for name in sorted(names):
        content = (EXPLORER / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def test_the_template_is_in_step_with_its_sources() -> None:
    found = re.search('<meta name="sources" content="([0-9a-f]{64})"', TEMPLATE.read_text(encoding="utf-8"))
    assert found
    assert found[1] == hash_of_sources(), "the page is stale: run `npm run build` in minitransformer/explorer"


@needs_npm
def test_building_again_gives_the_same_bytes() -> None:
    built = subprocess.run([str(NODE), "build.mjs", "--stdout"], cwd=EXPLORER, capture_output=True, check=False)
    assert built.returncode == 0, built.stderr.decode()
    assert built.stdout == TEMPLATE.read_bytes()


@needs_npm
@pytest.mark.slow
def test_types_and_layout_of_the_sources_are_right() -> None:
    checked = subprocess.run(["npm", "run", "check"], cwd=EXPLORER, capture_output=True, check=False)
    assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()


def test_the_lock_names_no_registry() -> None:
    lock = (EXPLORER / "package-lock.json").read_text(encoding="utf-8")
    assert "resolved" not in lock
    wanted = json.loads((EXPLORER / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values()), "versions are exact"


def test_the_template_asks_nobody_for_anything() -> None:
    page = TEMPLATE.read_text(encoding="utf-8")
    elements = Elements(page).elements
    for tag, attributes in elements:
        assert not {"src", "href", "action", "srcset", "data"} & attributes.keys(), tag
        assert tag not in {"link", "iframe", "object", "embed", "base"}
    policies = [each["content"] or "" for tag, each in elements if each.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policies[0].split("; "))
    script = Elements(page).script(None)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digest}'",
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    for name in ("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "eval(", "new Function"):
        assert name not in script, name


def payload_in(page: str) -> dict[str, Any]:
    """The payload, as the page reads it."""
    return json.loads(Elements(page).script("payload"))


def test_the_page_of_the_courses_translator_is_small_and_holds_its_weights(course: Course, tmp_path: Path) -> None:
    path = tmp_path / "explorer.html"
    explored = explore(course.model, course.tokenizer, path, name=COURSE.name, languages=("en", "de"))
    page = path.read_text(encoding="utf-8")
    assert explored.num_bytes == path.stat().st_size <= MOST_BYTES
    assert explored.loss is None
    content = payload_in(page)
    assert (content["name"], content["languages"]) == (COURSE.name, ["en", "de"])
    assert len(content["examples"]) == 12
    data = base64.b64decode(content["weights"])
    for tensor in content["tensors"]:
        expected = course.model.parameters.named[tensor["name"]].value
        assert tensor["shape"] == list(expected.shape)
        assert data[tensor["offset"] : tensor["offset"] + expected.nbytes] == expected.tobytes()
    template = TEMPLATE.read_text(encoding="utf-8")
    before, after = template.split("%PAYLOAD%")
    assert page.startswith(before)
    assert page.endswith(after)


def test_no_text_of_a_payload_leaves_its_element(tmp_path: Path) -> None:
    hostile = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "]]>",
        "<img src=x onerror=alert(1)>",
        "\u2028'\"\\",
        "\ud800",
    ]
    merges = [("<", "/"), ("</", "s"), ("</s", "c"), ("</sc", "ript>")]
    merges = [("r", "i"), ("ri", "p"), ("rip", "t"), ("ript", ">"), *merges]
    tokenizer = BPETokenizer("".join(sorted("</script>")[:0]) + "/<>ciprst", merges)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, d_model=8, num_heads=2, d_ff=8, num_layers=1))
    path = tmp_path / "page.html"
    explore(model, tokenizer, path, name=hostile[0], examples=hostile)
    page = path.read_bytes()
    plain, clean = Elements(TEMPLATE.read_text(encoding="utf-8")), Elements(page.decode())
    assert clean.elements == plain.elements
    content = payload_in(page.decode())
    assert content["examples"] == hostile
    assert content["name"] == hostile[0]
    assert content["tokenizer"]["merges"] == [list(merge) for merge in merges]
    assert "<" not in clean.script("payload")


def test_int8_weighs_a_quarter_and_says_what_it_costs(course: Course, tmp_path: Path) -> None:
    path = tmp_path / "int8.html"
    examples = [course.tokenizer.decode(source) for source in course.sources[:6]]
    explored = explore(course.model, course.tokenizer, path, examples=examples, int8=True)
    assert explored.num_bytes < MOST_BYTES / 3
    assert explored.loss is not None
    assert explored.loss.sentences == 6
    assert payload_in(path.read_text(encoding="utf-8"))["loss"] == {
        "sentences": 6,
        "maxDifference": explored.loss.max_difference,
        "meanDifference": explored.loss.mean_difference,
        "equalOutputs": explored.loss.equal_outputs,
    }
