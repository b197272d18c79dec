"""The report in the repository: see `CommittedReport`; and its predictions are those that were written down."""

import json

from support.committed import CommittedReport

from after.command import STUDY
from after.predictions import predictions_of


class TestAfter(CommittedReport):
    study = STUDY

    def test_the_predictions_are_those_that_were_written_down(self) -> None:
        """A prediction that is changed after its experiment ran is not that of the results."""
        for path in STUDY.out.glob("results/*.json"):
            assert json.loads(path.read_text(encoding="utf-8"))["findings"]["predictions"] == predictions_of(path.stem)
