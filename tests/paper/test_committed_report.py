"""The report in the repository: see `CommittedReport`."""

from support.committed import CommittedReport

from paper.command import STUDY


class TestPaper(CommittedReport):
    study = STUDY

    def test_every_experiment_has_its_part(self) -> None:
        for name in STUDY.experiments:
            assert (STUDY.out / f"results/{name}.json").is_file()
