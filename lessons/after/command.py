"""`python -m after`: run the experiments on ideas that came after the paper, and write their report."""

from collections.abc import Sequence
from pathlib import Path

from study import command
from study.experiment import Study
from study.markdown import paragraph

from .experiments import EXPERIMENTS
from .task import Texts

HEAD = [
    "# After the paper, measured",
    paragraph("""
        How much are the ideas since *Attention Is All You Need* worth, as far as models that train in minutes on two
        cores can show it? Most are tested on the sentences of a grammar, distillation on Multi30k. Single parts are
        exchanged at equal cost; each other section says what it holds equal. One thing is called better than another
        only where the interval of their difference leaves out zero. Where it does not, the report says that these
        training runs can't tell, which does not show that the two are equal. Losses are in nats: natural logarithms, so
        that perplexity is e^loss. Other terms are in the [glossary](../glossary.md).
    """),
    paragraph("""
        The predictions were written down before an experiment ran for its results (`predictions.json`, whose history
        shows when; decoding, the look inside and rewards had been tried for a moment, to see that the code works; the
        predictions for code and scenes come from trials, which they name; one prediction says itself that it was
        written later). Each section says which predictions were wrong. The rules of these verdicts became stricter
        after the first results had been seen: brackets cover seeds too, and a prediction is right only if the whole
        bracket lies in its range, and wrong only if all of it lies outside. By the first rules 20 of the 49 predictions
        that the project published were right, 14 were wrong, and for 15 it could not be told.
    """),
    paragraph("""
        This file, its pictures and the JSON beside it are written by the commands that each section names; `make after`
        runs them all.
    """),
]

STUDY = Study(
    name="after",
    subject="the experiments after the paper",
    help="Measure what came after the paper, in miniature, and write a report.",
    examples=("decoding inside", "ablation --minutes 120", "distillation --data DIR"),
    head=HEAD,
    out=Path(__file__).parent,
    experiments=EXPERIMENTS,
    minutes=275.0,
    tasks={"all": 1.0},
    task=lambda name, data: Texts(data),
    data_goes_with="distillation",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, by default that of `sys.argv`; returns the exit status."""
    return command.main(STUDY, argv)
