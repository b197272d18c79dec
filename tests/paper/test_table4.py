"""Parsing, gathered and told from made-up results; what its trials are."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.study_results import TREE, MadeUpRunner

from minitransformer.data.preparation import CorpusChoice, PreparedData
from minitransformer.data.token_dataset import TokenDataset
from minitransformer.data.tokenizer import BPETokenizer
from paper.experiments import table4
from paper.experiments.table4 import published
from paper.task import GRAMMAR, Task, multi30k
from study.experiment import Context, Findings
from study.trials.bootstrap import bracket_statistics
from study.trials.translating import Translating
from study.trials.trial import Trial, TrialResult, step_flops

pytestmark = pytest.mark.usefixtures("few_samples")
NAMES = ("table4 small Transformer", "table4 small RNN", "table4 large Transformer", "table4 large RNN")
LONGER = "(S (NP XX XX )NP (VP XX (NP XX )NP )VP )S"
SHIFTED = "(S (NP XX XX )NP (VP XX )VP XX )S"


@dataclass
class Forest(MadeUpRunner):
    """Made-up results beside a treebank of two trees, one of them the test's; answers may be given instead."""

    answers: dict[str, list[str]] = field(default_factory=dict)

    def data(self, choice: CorpusChoice) -> PreparedData:
        """Two batches where sentences and trees are longer than half of one."""
        tokenizer = BPETokenizer.train([TREE, LONGER], 270)
        trees = [tokenizer.encode(TREE), tokenizer.encode(LONGER) * 20]
        dataset = TokenDataset.from_pairs([([5], ids) for ids in trees])
        return PreparedData(choice, tokenizer, dataset, dataset)

    def result(self, trial: Trial) -> TrialResult:
        """The made-up result, with the answers for this trial."""
        result = super().result(trial)
        if trial.name in self.answers:
            evaluation, hypotheses = result.answers(), self.answers[trial.name]
            references = evaluation.references[: len(hypotheses)]
            statistics = bracket_statistics(hypotheses, references)
            asked = replace(evaluation, hypotheses=hypotheses, references=references, statistics=statistics)
            result.evaluations["evaluation"] = asked
        return result


def find(task: Task = GRAMMAR, **options: Any) -> Findings:
    runner: Any = Forest(**options)
    context = Context(task, 0.01, runner)
    return json.loads(json.dumps(table4.find(context)))


def told(findings: Findings) -> str:
    return "\n".join(table4.report(findings))


def test_all_parsers_cost_the_same() -> None:
    trials = table4.trials(GRAMMAR, 1.0)
    banks = [bank for bank in table4.TREEBANKS for _ in range(2)]
    costs = [t.settings.steps * step_flops(t.config, b.batch) for t, b in zip(trials, banks, strict=True)]
    assert [trial.name for trial in trials] == list(NAMES)
    assert costs == pytest.approx([table4.OPERATIONS] * 4, rel=3e-3)  # steps are multiples of the checkpoints


def test_the_trees_are_the_grammars_whatever_the_task() -> None:
    trials = table4.trials(multi30k(None), 0.1)
    assert trials == table4.trials(GRAMMAR, 0.1)
    assert [trial.text.sentences for trial in trials] == [1000, 1000, 40_000, 40_000]
    assert {(trial.text.dataset, trial.text.target) for trial in trials} == {("grammar", "tree")}


def test_the_search_is_the_papers() -> None:
    for trial in table4.trials(GRAMMAR, 1.0):
        (evaluation,) = trial.evaluations
        assert isinstance(evaluation, Translating)
        assert (evaluation.beam, evaluation.length_penalty, evaluation.max_extra) == (21, 0.3, 300)
        assert trial.text.max_length + evaluation.max_extra <= trial.config.max_length
        assert trial.text.vocab_size == trial.config.vocab_size


def test_differences_that_are_shown_and_that_are_not(tmp_path: Path) -> None:
    qualities = dict(zip(NAMES, (0.95, 0.2, 0.95, 0.95), strict=True))
    findings = find(qualities=qualities)
    text = told(findings)
    assert "- small: Transformer is better than RNN + attention by" in text
    assert "- large: Transformer and RNN + attention: no difference in F1" in text
    assert "- Transformer with many trees and Transformer with few: no difference in F1" in text
    assert "- RNN + attention with many trees is better than RNN + attention with few by" in text
    assert "In the paper: +3.0." in text
    assert "multi30k" not in text
    table4.draw(findings, tmp_path)
    assert (tmp_path / "table4-parsing.png").read_bytes().startswith(b"\x89PNG")


def test_malformed_parses_are_counted_by_kind() -> None:
    near = "(S (NP XX )NP XX (VP XX )VP )S"
    answers = {NAMES[2]: [TREE, TREE, "(S (NP XX XX )NP (VP XX )VP", SHIFTED], NAMES[3]: [LONGER] * 4}
    answers |= {name: [TREE, near, TREE, LONGER] for name in NAMES if name not in answers}
    findings = find(answers=answers)
    row = findings["parsers"][2]
    assert (row["sentences"], row["exactly_right"], row["malformed"], row["no_tree"]) == (4, 2, 2, 1)
    assert row["f1"]["value"] == pytest.approx(100 * 11 / 12)  # all but the S that is a word too long
    assert row["strict_f1"]["value"] == pytest.approx(50.0)
    assert row["sound_f1"]["value"] == pytest.approx(100.0)
    assert findings["parsers"][0]["sound_f1"]["value"] == pytest.approx(100 * 8 / 9)  # one of nine: a shorter NP
    assert findings["parsers"][3]["sound_f1"] is None
    assert [each["only_words"] for each in findings["parsers"]] == [0, 0, 1, 0]  # SHIFTED; LONGER has an NP more
    assert [each["brackets_right"] for each in findings["parsers"]] == [3, 3, 3, 0]
    assert "miscounted: Transformer, small: 0 of 1; RNN + attention, small: 0 of 1;" in told(findings)
    assert "Of all parses, with these brackets: Transformer, small: 3 of 4;" in told(findings)
    assert "Transformer, large 1.099; RNN + attention, large 1.099." in told(findings)  # perplexity 3
    assert "Transformer, large: 1 and 1" in told(findings)
    assert "F1 is Transformer, small: 88.9 (" in told(findings)
    assert told(findings).count("Transformer, large: 100.0 (100.0 to 100.0).") == 1
    assert "| Transformer | large | 91.7 (" in told(findings)


def test_a_parse_that_went_wrong() -> None:
    """The report shows the best parser's: a sound parse with the fewest wrong constituents."""
    near = "(S (NP XX )NP XX (VP XX )VP )S"
    answers = {name: ["(S XX", "(S XX", "(S XX"] for name in NAMES}
    answers[NAMES[1]] = [TREE, "(S (NP XX XX )NP (VP XX", near]
    findings = find(answers=answers)
    mistake = findings["mistake"]
    assert (mistake["trees"], mistake["model"], mistake["malformed"]) == ("small", "RNN + attention", False)
    assert (mistake["written"], mistake["wanted"]) == (near, TREE)
    assert mistake["sentence"].startswith("The strange actress did not go")  # the third of the test set
    assert (mistake["missing"], mistake["wrong"]) == (["NP: the strange"], ["NP: the"])
    assert "the best parser (RNN + attention, small); it is sound:" in told(findings)


def test_without_mistakes_there_is_no_example() -> None:
    findings = find(qualities=dict.fromkeys(NAMES, 2.0))
    assert findings["mistake"] is None
    assert "No example of a parse that went wrong" in told(findings)


def test_a_training_that_diverged(tmp_path: Path) -> None:
    findings = find(diverged={NAMES[0]: "the loss of step 3 is nan"})
    text = told(findings)
    assert "diverged: the loss of step 3 is nan" in text
    assert "- small: Transformer and RNN + attention can't be compared" in text
    assert "- large: Transformer and RNN + attention: no difference in F1" in text
    table4.draw(findings, tmp_path)
    assert (tmp_path / "table4-parsing.png").is_file()


def test_nothing_but_divergence(tmp_path: Path) -> None:
    findings = find(diverged=dict.fromkeys(NAMES, "nan"))
    assert "none was tested" in told(findings)
    table4.draw(findings, tmp_path)
    assert (tmp_path / "table4-parsing.png").is_file()


def test_what_the_trainings_saw() -> None:
    findings = find()
    for row in findings["parsers"]:
        assert row["epochs"] == row["steps"] / 2
        assert row["known"] == row["sentences"]
        assert row["curve"][-1][0] == pytest.approx(row["flops"])
    assert "100 % among the 2 and 100 % among the 2 to train on" in told(findings)


def test_another_task_is_told_whose_trees_they_are() -> None:
    findings = find(task=multi30k(None))
    assert "multi30k has no trees: these are the grammar's" in told(findings)


def test_models_that_were_asked_different_sentences_are_not_compared() -> None:
    with pytest.raises(ValueError, match="the same sentences"):
        find(answers={NAMES[0]: [TREE]})


def test_the_papers_counterparts() -> None:
    rows = [published(trees, model) for trees in ("small", "large") for model in ("Transformer", "RNN + attention")]
    assert rows == [91.3, 88.3, 92.7, 92.1]


def test_the_example_is_linearised() -> None:
    example = find()["example"]
    assert example["linearised"].count("XX") == len(table4._words(example["tree"]))
    assert example["tree"].startswith("(S (")
