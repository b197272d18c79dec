"""Makes the film of explorer/README.md: `python tests/explorer/film.py runs/explorer.html FILE.gif`. Needs Chromium."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

COLOURS = 96


def film(page: str, target: str) -> None:
    """The frames that `browser/film.mjs` takes, as an animated GIF."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CHROMIUM": shutil.which("chromium") or ""}
        script = Path(__file__).parent / "browser/film.mjs"
        subprocess.run(["node", script, page, folder], env=environment, check=True)
        paths = sorted(Path(folder).glob("*.png"))
        pictures = [Image.open(path).convert("RGB") for path in paths]
        width, height = pictures[0].size
        sheet = Image.new("RGB", (width, height * 6))  # of the last views, whose colours all frames share
        for number, picture in enumerate(pictures[-6:]):
            sheet.paste(picture, (0, height * number))
        palette = sheet.quantize(COLOURS, Image.Quantize.MEDIANCUT)
        frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
        times = [int(path.stem.split("-")[1]) for path in paths]
        frames[0].save(target, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    film(*sys.argv[1:])
