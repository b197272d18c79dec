"""`python -m paper`: the paper's tables and figures beside this project's results."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from minitransformer.cli import main as run_command
from minitransformer.cli.backend import Backend, add_backend_options, chosen_backend
from minitransformer.cli.common import Parser, heavy_work, number, path_name, positive_int, say
from minitransformer.cli.errors import INTERRUPTED
from minitransformer.cli.outputs import check_output
from minitransformer.threads import available_cores

from .experiment import GRAMMAR, Context, Experiment, Task, multi30k
from .experiments import EXPERIMENTS
from .report import Origin, check_folder, from_longer, machine, save_findings, write_report
from .trials.run import Interrupted
from .trials.runner import EDITION, Runner

MINUTES = 60.0
TASKS = {"grammar": 1.0, "multi30k": 10.0}
"""The tasks, each with the factor on the grammar's default budget that it takes to learn something."""

A_YEAR = 365 * 24 * 60

OUT = Path(__file__).parent
PROGRAM = "PYTHONPATH=lessons python -m paper"

EPILOG = f"""\
examples:
  make paper
  {PROGRAM} table1 cost
  {PROGRAM} table2 --task multi30k --minutes 165

--out gets paper.md, results/*.json and pictures/*.png. Trainings are kept in --work, each once: after Ctrl-C or a kill
the same command goes on. The budget decides how many steps each training takes, so that a result repeats whatever the
machine: the minutes are those of two cores of a server, and a faster machine ends sooner. Evaluations and
measurements take some minutes more, however small the budget.
"""


def build_parser() -> Parser:
    """The parser of the command, with its options."""
    parser = Parser(
        prog="python -m paper",
        description="Repeat the paper's experiments in miniature, and write a report.",
        epilog=EPILOG,
    )
    help_text = f"{', '.join(EXPERIMENTS)} (default: all)"
    experiments = parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=help_text)
    help_text = f"budget for the trainings, on two cores (default: {MINUTES:g}, or a part; multi30k: ten times that)"
    parser.add_argument("--minutes", type=number(), metavar="N", help=help_text)
    parser.add_argument("--task", choices=tuple(TASKS), default="grammar", help="what is translated (default: grammar)")
    parser.add_argument("--data", type=path_name, metavar="DIR", help="Multi30k's files on disk, for --task multi30k")
    parser.add_argument("--workers", type=positive_int, metavar="N", help="trainings at once (default: one a core)")
    help_text = "the report (default: lessons/paper)"
    parser.add_argument("--out", type=path_name, default=str(OUT), metavar="FOLDER", help=help_text)
    help_text = "the trainings (default: runs/paper)"
    parser.add_argument("--work", type=path_name, default="runs/paper", metavar="FOLDER", help=help_text)
    help_text = "only write report and pictures again, from the results in --out"
    parser.add_argument("--report", action="store_true", help=help_text)
    add_backend_options(parser)
    parser.set_defaults(run=run, trailing=experiments)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default that of `sys.argv`; returns the exit status."""
    return run_command(argv, build_parser, "paper")


def run(args: argparse.Namespace) -> int:
    """Run the trainings that are missing, measure, draw the pictures and write the report."""
    out = Path(args.out)
    if args.report and (args.experiments or args.minutes is not None or args.data or args.task != "grammar"):
        raise ValueError("--report takes no experiment, task or budget: it writes again what is in --out")
    for path in (out / "paper.md", *out.glob("results/*"), *out.glob("pictures/**/*")):
        check_output("--out", path, [args.data])
    if not args.report:
        backend = chosen_backend(args)
        asked = _names(args.experiments)
        chosen = [EXPERIMENTS[name] for name in EXPERIMENTS if name in asked]
        with heavy_work():
            try:
                _experiment(chosen, args, backend, out)
            except Interrupted:
                say("the same command goes on from there")
                return INTERRUPTED
    say(f"report            {write_report(out, EXPERIMENTS, tuple(TASKS))}")
    return 0


def budget(chosen: Sequence[Experiment], minutes: float | None, task: str = "grammar") -> tuple[float, float]:
    """The minutes for these experiments, and the factor on the steps of the grammar's default budget.

    Raises ValueError for minutes that are not positive, or more than a year.
    """
    usual = MINUTES if len(chosen) == len(EXPERIMENTS) else sum(each.ALONE for each in chosen)
    if minutes is None:
        minutes = usual * TASKS[task]
    if not 0 < minutes <= A_YEAR:
        raise ValueError(f"--minutes must be positive and at most {A_YEAR:,}, a year, got {minutes:g}")
    return minutes, minutes / usual


def _experiment(chosen: Sequence[Experiment], args: argparse.Namespace, backend: Backend, out: Path) -> None:
    minutes, scale = budget(chosen, args.minutes, args.task)
    task = _task(args)
    runner = Runner(Path(args.work), args.workers or available_cores(), backend.ops, backend.dtype, str(backend), say)
    check_folder(out)
    for path in filter(None, (from_longer(out, each, task.name, scale) for each in chosen)):
        say(f"{path} came from longer trainings and will be replaced; --out FOLDER keeps it")
    trials = {each.NAME: each.trials(task, scale) for each in chosen}
    runner.run([trial for of_one in trials.values() for trial in of_one])
    context = Context(task, scale, runner)
    for each in chosen:
        say(f"{each.NAME}: measuring")
        findings = each.find(context)
        seconds = sum(runner.result(trial).total_seconds for trial in trials[each.NAME])
        origin = Origin(_command(args), task.name, minutes, scale, seconds / 60, str(backend), machine(), EDITION)
        save_findings(out, each, origin, findings)


def _names(names: Sequence[str]) -> Sequence[str]:
    """The names of the experiments to run, by default all. Raises ValueError for an unknown one."""
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {name!r}: choose from {', '.join(EXPERIMENTS)}")
    return names or list(EXPERIMENTS)


def _task(args: argparse.Namespace) -> Task:
    if args.task == "multi30k":
        return multi30k(args.data)
    if args.data:
        raise ValueError("--data goes with --task multi30k")
    return GRAMMAR


def _command(args: argparse.Namespace) -> str:
    """The command as the report shows it, without the folders of this machine."""
    minutes = f"{args.minutes:g}" if args.minutes else None
    options = {"--minutes": minutes, "--task": args.task if args.task != "grammar" else None}
    options |= {"--data": "DIR" if args.data else None, "--device": args.device}
    options |= {"--backend": args.backend if args.backend != "numpy" else None, "--dtype": args.dtype}
    words = [f"{name} {value}" for name, value in options.items() if value]
    return " ".join([PROGRAM, *args.experiments, *words])
