"""`python -m course progress`, `reset NN` and, for teachers, `grade FOLDER`, from the folder of the lessons."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from minitransformer.cli import main as run_command
from minitransformer.cli.common import Parser, number, path_name, say
from minitransformer.cli.errors import ERROR, complain

from . import grading
from .learner import progress_report, reset
from .sources import exercise_names, number_of, sources


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="python -m course", description="What you have done in the course, and what a class has.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    how_far = commands.add_parser("progress", help="which exercises are answered right")
    how_far.add_argument("number", metavar="NN", nargs="?", type=_number, help="one lesson (default: all)")
    how_far.set_defaults(run=_progress)
    again = commands.add_parser("reset", help="begin a lesson again; your answers are kept under another name")
    again.add_argument("number", metavar="NN", type=_number, help='the lesson, "00" to "30"')
    again.set_defaults(run=_reset)
    marks = commands.add_parser("grade", help="for teachers: the marks of a class, from its notebooks")
    marks.add_argument(
        "folder",
        metavar="FOLDER",
        type=path_name,
        help="the notebooks, in a folder for each learner or with the learner's name in the file's",
    )
    marks.add_argument(
        "--lesson",
        metavar="NN",
        type=_number,
        nargs="+",
        action="extend",
        default=[],
        help="grade these lessons (default: all)",
    )
    marks.add_argument(
        "--exercise",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="mark these exercises (default: all)",
    )
    marks.add_argument("--json", metavar="FILE", type=path_name, help="write the marks there, too")
    limit = f"what one answer may take (default: {grading.SECONDS:g})"
    marks.add_argument("--seconds", metavar="S", type=number(0.1, 3600), default=grading.SECONDS, help=limit)
    trusted = "grade also where nothing keeps the notebooks from doing what you may do"
    marks.add_argument("--trusted", action="store_true", help=trusted)
    marks.set_defaults(run=_grade)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default that of `sys.argv`; returns the exit status, as `minitransformer.cli` has it."""
    return run_command(argv, build_parser, "course", ("course", "__main__"))  # under `python -m` it is the latter


def _number(text: str) -> str:
    return text.zfill(2)


def _progress(args: argparse.Namespace) -> int:
    lines, faults = progress_report(args.number)
    print("\n".join(lines), flush=True)
    for fault in faults:
        complain(f"course: {fault}")
    return ERROR if faults else 0


def _reset(args: argparse.Namespace) -> int:
    print("\n".join(reset(args.number)))
    return 0


def _grade(args: argparse.Namespace) -> int:
    folder, lessons = Path(args.folder), sorted(set(args.lesson))
    if unknown := [each for each in lessons if each not in map(number_of, sources())]:
        raise ValueError(f"there is no lesson {', '.join(unknown)}")
    known = {name for each in sources() if not lessons or number_of(each) in lessons for name in exercise_names(each)}
    if unknown := [name for name in args.exercise if name not in known]:
        raise ValueError(f"no lesson{' of these' if lessons else ''} has an exercise {', '.join(unknown)}")
    submissions, marks = grading.find_submissions(folder)
    if not submissions:
        raise ValueError(f"{folder} has no notebook in it")
    if args.json:
        grading.check_marks_file(Path(args.json))

    def tell(*more: str) -> None:
        say(*grading.report(marks), *more)
        if args.json:
            grading.write_marks(Path(args.json), marks)

    try:
        with grading.ForkServer(args.trusted) as server:
            grading.grade(submissions, marks, server, lessons, args.exercise, args.seconds)
    except KeyboardInterrupt:
        tell("interrupted: these marks are not all")
        raise
    tell()
    return 0


if __name__ == "__main__":
    sys.exit(main())
