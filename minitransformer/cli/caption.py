"""Say in words what a picture shows.

examples:
  {program} caption runs/scenes-captioner/step-00010000.safetensors --scene 0 1 2 --save pictures
  {program} caption runs/scenes-captioner/step-00010000.safetensors scene.png --beam 4

MODEL is a checkpoint of `train --kind captioner`. Pictures are of any kind that Pillow reads, and are resized to the
size that the model knows; it has seen nothing but coloured shapes on grey, and transparent parts become grey. Each line
is an input and its caption, separated by a tab. With --scene, `true` follows, or the parts of the caption that are not:
it is judged in the model's language, English or German.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..data.scenes import caption_language
from ..decoding import Describer, with_tokenizer
from ..grammar.captions import PARTS, Language, judge
from ..grammar.scenes import Scene, draw, draw_scene
from ..system.atomic import atomic_write
from .backend import add_backend_options, chosen_backend
from .common import MOST_BEAMS, Parser, add_option, heavy_work, one_line, path_name, whole_number
from .model_argument import about, open_model

AT_ONCE = 32
"""Pictures that are described before their captions are printed."""

HELP = "describe pictures of coloured shapes with a captioner"


def add_options(parser: Parser) -> None:
    """Declare the options of `caption`."""
    add_option(parser, "model", "MODEL", path_name, "a checkpoint of `train --kind captioner`")
    inputs = parser.add_argument("inputs", nargs="*", type=path_name, metavar="PICTURE", help="pictures' files")
    help_text = "numbers of scenes that no training has seen, which are drawn and judged"
    add_option(parser, "--scene", "N", whole_number(least=0), help_text, nargs="+")
    help_text = "write the pictures of the scenes into this folder, scene-N.png"
    add_option(parser, "--save", "FOLDER", path_name, help_text)
    beam = whole_number(most=MOST_BEAMS)
    add_option(parser, "--beam", "N", beam, "width of the search, 1 is greedy (default: 4)", default=4)
    add_backend_options(parser)
    parser.set_defaults(trailing=inputs)


def run(args: argparse.Namespace) -> int:
    """Print each picture with its caption."""
    if bool(args.inputs) == (args.scene is not None):
        raise ValueError("name what to describe: pictures, or --scene, one of the two")
    if args.save and args.inputs:
        raise ValueError("--save goes with --scene: the pictures that you name are files already")
    backend = chosen_backend(args)
    with heavy_work():
        model, tokenizer, _ = with_tokenizer(args.model, open_model(args.model, backend))
        with about(args.model):
            describer = Describer(model, tokenizer)
            language = caption_language(tokenizer) if args.scene else "english"
        inputs: list[Any] = args.inputs or [draw_scene("test", 0, number) for number in args.scene]
        if args.save:
            for number, scene in zip(args.scene, inputs, strict=True):
                save_scene(scene, Path(args.save) / f"scene-{number}.png")
        for start in range(0, len(inputs), AT_ONCE):  # what is done is shown
            part = inputs[start : start + AT_ONCE]
            pictures = [draw(each) if isinstance(each, Scene) else each for each in part]
            captions = describer.describe(pictures, args.beam)
            for place, (each, text) in enumerate(zip(part, captions, strict=True), start):
                scene = isinstance(each, Scene)
                columns = [f"scene {args.scene[place]}", text, verdict(text, each, language)] if scene else [each, text]
                print("\t".join(map(one_line, columns)), flush=True)
    return 0


def save_scene(scene: Scene, path: Path) -> None:
    """Write the picture of a scene as a PNG file."""
    from PIL import Image  # here, because few commands need it

    pixels = 127.5 * (1 + draw(scene).transpose(1, 2, 0))  # (height, width, 3)
    with atomic_write(path) as file:
        Image.fromarray(pixels.round().astype(np.uint8)).save(file, "PNG")


def verdict(text: str, scene: Scene, language: Language = "english") -> str:
    """Return "true" for a caption that is, or the parts that are not."""
    judged = judge(text, scene, language)
    wrong = [part for part in PARTS if not getattr(judged, part)]
    return "true" if judged.true else f"wrong: {', '.join(wrong)}"
