"""`python -m paper`: the paper's tables and figures beside this project's results."""

from collections.abc import Sequence
from pathlib import Path

from study import command
from study.experiment import Study
from study.markdown import paragraph

from .experiments import EXPERIMENTS
from .task import GRAMMAR, Task, multi30k

HEAD = [
    "# The paper's experiments",
    paragraph("""
        Every table and figure of *Attention Is All You Need* (Vaswani et al., 2017) beside this project's results.
        Counts are computed from configurations, to the number. Training that takes eight GPUs for days is repeated in
        miniature, mostly on the sentences of a grammar: such results hold at that size and after so short a run, no
        more. No model is called better than another unless the 95 % interval of their difference, over bootstrap
        samples of the test sentences, leaves out zero. That covers the choice of the test sentences, not that of the
        seed; and of so many intervals one in twenty misses the true value.
    """),
    paragraph("""
        This file, its pictures and the JSON beside it are written by the commands that each section names; `make paper`
        runs all that are about the grammar. BLEU is sacreBLEU's with its defaults (13a tokenisation, cased) on
        untokenised text; of Multi30k on the Flickr test set of 2016.
    """),
]


def task_named(name: str, data: str | None) -> Task:
    """The task of this name; `data` is a folder with Multi30k's files, or None: they are downloaded."""
    return multi30k(data) if name == "multi30k" else GRAMMAR


STUDY = Study(
    name="paper",
    subject="the paper's experiments",
    help="Repeat the paper's experiments in miniature, and write a report.",
    examples=("table1 cost", "table2 --task multi30k --minutes 165"),
    head=HEAD,
    out=Path(__file__).parent,
    experiments=EXPERIMENTS,
    minutes=60.0,
    tasks={"grammar": 1.0, "multi30k": 10.0},
    task=task_named,
    data_goes_with="--task multi30k",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default that of `sys.argv`; returns the exit status."""
    return command.main(STUDY, argv)
