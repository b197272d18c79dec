"""What the first edition of this program left in a training's folder: the same, without checksums."""

import json
from pathlib import Path

from minitransformer.data.token_dataset import FIELDS_OF_VERSION_1
from minitransformer.training import read_log


def make_first_edition(data: Path) -> None:
    """Turn prepared data into that edition's."""
    for name in ("train", "valid"):
        path = data / name / "meta.json"
        meta = {name: value for name, value in json.loads(path.read_bytes()).items() if name in FIELDS_OF_VERSION_1}
        path.write_text(json.dumps(meta | {"version": 1, "fingerprint": ""}, indent=2) + "\n")
    description = json.loads((data / "corpus.json").read_bytes())
    description = {name: description[name] for name in ("choice", "fingerprint")}
    (data / "corpus.json").write_text(json.dumps(description, indent=2) + "\n")


def make_first_edition_log(path: Path) -> None:
    """Turn a log into that edition's."""
    path.write_text("".join(json.dumps(record) + "\n" for record in read_log(path)))
