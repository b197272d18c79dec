"""The package that users install: what its files hold, and what its page, its changelog and its citation say."""

import re
import tarfile
import zipfile
from email import message_from_bytes
from importlib import import_module
from pathlib import Path, PurePath

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import minitransformer

ROOT = Path(__file__).parents[2]
VERSION = minitransformer.__version__


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("sdist")))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = WheelBuilder(str(ROOT))
    return Path(next(builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])))


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path):
    assert wheel.name == f"minitransformer-{VERSION}-py3-none-any.whl"
    assert wheel.stat().st_size <= 3_000_000
    names = [PurePath(name) for name in zipfile.ZipFile(wheel).namelist()]
    assert {name.parts[0] for name in names} == {"kernels", "minitransformer", f"minitransformer-{VERSION}.dist-info"}
    assert {str(name) for name in names if name.suffix != ".py" and not name.parts[0].endswith(".dist-info")} == {
        "kernels/py.typed",
        "kernels/results/machine.json",
        "kernels/results/nvidia-h200.json",
        "minitransformer/explorer/page.html",
        "minitransformer/inside/page.html",
        "minitransformer/py.typed",
    }


def test_the_sdist_makes_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path):
    assert sdist.stat().st_size <= 3_000_000
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    builder = WheelBuilder(str(tmp_path / f"minitransformer-{VERSION}"))
    again = Path(next(builder.build(directory=str(tmp_path), versions=["standard"])))
    assert again.read_bytes() == wheel.read_bytes()


def test_the_page_of_the_package_has_no_relative_link(wheel: Path):
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(f"minitransformer-{VERSION}.dist-info/METADATA"))
    page = metadata.get_payload()
    assert isinstance(page, str)
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href)=\"([^\"]*)", page)
    assert targets
    assert all((first or second).startswith("https://") for first, second in targets)


def test_the_changelog_and_the_citation_are_of_this_version():
    heading = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading
    assert heading[1] == VERSION
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'\nversion: {VERSION}\ndate-released: "{heading[2]}"\n' in citation


@pytest.mark.parametrize("room", ["ops", "layers", "models", "training"])
def test_a_type_checker_lets_users_import_what_a_room_offers(room: str):
    """In an installed package, to a type checker a name that is imported and not in `__all__` is private."""
    module = import_module(f"minitransformer.{room}")
    offered = {
        name
        for name, value in vars(module).items()
        if callable(value) and value.__module__.startswith("minitransformer.") and not name.startswith("_")
    }
    assert offered <= set(module.__all__)
