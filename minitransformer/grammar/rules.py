"""Which sentences the grammar forms, and how often each kind is drawn."""

from __future__ import annotations

from .clauses import Clauses, Style
from .lexicon import function_words as words
from .lexicon.lexicon import Lexicon
from .lexicon.nouns import GROUPS
from .spaces import Choice, Record, Space, Union
from .syntax import (
    ADVERBIAL,
    COMPLEMENT,
    COORDINATION,
    FRONTED_ADVERBIAL,
    PRESENT,
    QUESTION,
    STATEMENT,
    Clause,
    Sentence,
)

STATEMENT_STYLE = Style(pronoun=3, relative=3, untimed=3, timed=3, fronted=4)
MAIN_STYLE = Style(timed=0, fronted=2)
SUBORDINATE_STYLE = Style()
QUESTION_STYLE = Style(pronoun=4, relative=2, negated=0, untimed=3, timed=2, quantified=False)
CURRENT, PASSED = ("present", "modal", "future"), ("past",)


class Grammar:
    """The language over a lexicon: `sentences` is the space of its derivations."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self.clauses = Clauses(lexicon)
        self.sentences = self._sentences()

    def _sentences(self) -> Space:
        statements, questions = self.clauses.of(STATEMENT_STYLE), self.clauses.of(QUESTION_STYLE)
        return Union(
            (40, Record(Sentence, kind=STATEMENT, main=statements)),
            (8, Record(Sentence, kind=QUESTION, main=questions)),
            (20, self._with_subordinate(ADVERBIAL)),
            (8, self._with_subordinate(FRONTED_ADVERBIAL)),
            (12, self._complements()),
            (12, self._coordinations()),
        )

    def _with_subordinate(self, kind: str) -> Space:
        """Two clauses linked by "because", "if" or "while", in tenses that go together."""
        main = MAIN_STYLE if kind == ADVERBIAL else MAIN_STYLE._replace(fronted=0)
        current, passed = (self.clauses.of(main._replace(tenses=tenses)) for tenses in (CURRENT, PASSED))
        present, because, because_past = (
            self.clauses.of(SUBORDINATE_STYLE._replace(tenses=tenses)) for tenses in (("present",), CURRENT, PASSED)
        )
        links = Choice([link for link in self.lexicon.links if link is not words.BECAUSE])
        return Union(
            (3, Record(Sentence, kind=kind, main=current, link=links, other=present)),
            (2, Record(Sentence, kind=kind, main=current, link=words.BECAUSE, other=because)),
            (2, Record(Sentence, kind=kind, main=passed, link=words.BECAUSE, other=because_past)),
        )

    def _complements(self) -> Space:
        """A verb of saying or thinking with a clause: she knows that he sleeps."""
        subject = self.clauses.subject(GROUPS["people"], SUBORDINATE_STYLE, positive=False)
        main = Record(Clause, subject=subject, verb=Choice(self.lexicon.clause_verbs), form=PRESENT)
        other = self.clauses.of(SUBORDINATE_STYLE)
        return Record(Sentence, kind=COMPLEMENT, main=main, link=words.THAT, other=other)

    def _coordinations(self) -> Space:
        """Two main clauses of the same time joined by "and" or "but"."""
        links = Choice(self.lexicon.coordinators)
        current, passed = (self.clauses.of(SUBORDINATE_STYLE._replace(tenses=tenses)) for tenses in (CURRENT, PASSED))
        return Union(
            (1, Record(Sentence, kind=COORDINATION, main=current, link=links, other=current)),
            (1, Record(Sentence, kind=COORDINATION, main=passed, link=links, other=passed)),
        )
