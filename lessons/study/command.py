"""The command of a study, such as `python -m paper`: it trains, measures, and writes the report."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitransformer.cli import main as run_command
from minitransformer.cli.backend import Backend, add_backend_options, chosen_backend
from minitransformer.cli.common import Parser, heavy_work, number, path_name, positive_int, say
from minitransformer.cli.errors import INTERRUPTED
from minitransformer.cli.outputs import check_output
from minitransformer.system.threads import available_cores

from .experiment import Context, Experiment, Study
from .report import Origin, check_folder, from_longer, machine, save_findings, write_report
from .trials.run import Interrupted
from .trials.runner import EDITION, Runner

EPILOG = """\
examples:
  make {name}
{examples}

--out gets {name}.md, results/*.json and pictures/*.png. Trainings are kept in --work, each once: after Ctrl-C or a kill
the same command goes on. The budget decides how many steps each training takes, so that a result repeats whatever the
machine: the minutes are those of two cores of a server, and a faster machine ends sooner. Evaluations and
measurements take some minutes more, however small the budget.
"""


def main(study: Study[Any], argv: Sequence[str] | None = None) -> int:
    """Run the command, by default that of `sys.argv`; returns the exit status."""
    return run_command(argv, lambda: build_parser(study), study.name, (study.name, "study"))


def build_parser(study: Study[Any]) -> Parser:
    """The parser of the command, with its options."""
    examples = "\n".join(f"  {study.program} {example}" for example in study.examples)
    parser = Parser(
        prog=f"python -m {study.name}", description=study.help, epilog=EPILOG.format(name=study.name, examples=examples)
    )
    help_text = f"{', '.join(study.experiments)} (default: all)"
    experiments = parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=help_text)
    longer = "".join(f"; {name}: {factor:g} times that" for name, factor in study.tasks.items() if factor != 1)
    help_text = f"budget for the training runs, on two cores (default: {study.minutes:g}, or a part{longer})"
    parser.add_argument("--minutes", type=number(), metavar="N", help=help_text)
    if len(study.tasks) > 1:
        help_text = f"what is translated (default: {study.home})"
        parser.add_argument("--task", choices=tuple(study.tasks), default=study.home, help=help_text)
    else:
        parser.set_defaults(task=study.home)
    help_text = f"Multi30k's files on disk, for {study.data_goes_with} (default: downloaded)"
    parser.add_argument("--data", type=path_name, metavar="DIR", help=help_text)
    parser.add_argument("--workers", type=positive_int, metavar="N", help="training runs at once (default: one a core)")
    help_text = f"the report (default: lessons/{study.name})"
    parser.add_argument("--out", type=path_name, default=str(study.out), metavar="FOLDER", help=help_text)
    work = f"runs/{study.name}"
    help_text = f"the training runs (default: {work})"
    parser.add_argument("--work", type=path_name, default=work, metavar="FOLDER", help=help_text)
    help_text = "only write report and pictures again, from the results in --out"
    parser.add_argument("--report", action="store_true", help=help_text)
    add_backend_options(parser)
    parser.set_defaults(run=lambda args: run(study, args), trailing=experiments)
    return parser


def run(study: Study[Any], args: argparse.Namespace) -> int:
    """Do the training runs that are missing, measure, draw the pictures and write the report."""
    out = Path(args.out)
    if args.report and (args.experiments or args.minutes is not None or args.data or args.task != study.home):
        raise ValueError("--report takes no experiment, task or budget: it writes again what is in --out")
    for path in (out / study.report_name, *out.glob("results/*"), *out.glob("pictures/**/*")):
        check_output("--out", path, [args.data])
    if not args.report:
        backend = chosen_backend(args)
        asked = _names(study, args.experiments)
        chosen = [each for name, each in study.experiments.items() if name in asked]
        with heavy_work():
            try:
                _experiment(study, chosen, args, backend, out)
            except Interrupted:
                say("the same command goes on from there")
                return INTERRUPTED
    say(f"report            {write_report(study, out)}")
    return 0


def _experiment(
    study: Study[Any], chosen: Sequence[Experiment[Any]], args: argparse.Namespace, backend: Backend, out: Path
) -> None:
    minutes, scale = study.budget(chosen, args.minutes, args.task)
    if args.data and study.data_goes_with not in (f"--task {args.task}", *(each.NAME for each in chosen)):
        raise ValueError(f"--data goes with {study.data_goes_with}")
    task = study.task(args.task, args.data)
    runner = Runner(Path(args.work), args.workers or available_cores(), backend.ops, backend.dtype, str(backend), say)
    check_folder(study, out)
    for path in filter(None, (from_longer(study, out, each, task.name, scale) for each in chosen)):
        say(f"{path} came from longer training runs and will be replaced; --out FOLDER keeps it")
    trials = {each.NAME: each.trials(task, scale) for each in chosen}
    runner.run([trial for of_one in trials.values() for trial in of_one])
    context = Context(task, scale, runner)
    for each in chosen:
        say(f"{each.NAME}: measuring")
        findings = each.find(context)
        seconds = sum(runner.result(trial).total_seconds for trial in trials[each.NAME])
        command = _command(study, args)
        origin = Origin(command, task.name, minutes, scale, seconds / 60, str(backend), machine(), EDITION)
        save_findings(study, out, each, origin, findings)


def _names(study: Study[Any], names: Sequence[str]) -> Sequence[str]:
    """The names of the experiments to run, by default all. Raises ValueError for an unknown one."""
    for name in names:
        if name not in study.experiments:
            raise ValueError(f"there is no experiment {name!r}: choose from {', '.join(study.experiments)}")
    return list(dict.fromkeys(names)) or list(study.experiments)


def _command(study: Study[Any], args: argparse.Namespace) -> str:
    """The command as the report shows it, without the folders of this machine."""
    minutes = f"{args.minutes:g}" if args.minutes else None
    options = {"--minutes": minutes, "--task": args.task if args.task != study.home else None}
    options |= {"--data": "DIR" if args.data else None, "--device": args.device}
    options |= {"--backend": args.backend if args.backend != "numpy" else None, "--dtype": args.dtype}
    words = [f"{name} {value}" for name, value in options.items() if value]
    return " ".join([study.program, *dict.fromkeys(args.experiments), *words])
