"""Abstract syntax: the derivation that English, German and French are all spelt out from.

Nothing here says anything of word order, agreement or case; each language adds its own.
"""

from __future__ import annotations

from typing import NamedTuple

from .words import (
    THIRD,
    THIRD_PLURAL,
    Adjective,
    Adverbial,
    Conjunction,
    Determiner,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)

PRESENT, PAST = "present", "past"


class NounPhrase(NamedTuple):
    """Determiner, adjective and noun, with at most one possessor ("the teacher's dog") or relative clause."""

    determiner: Determiner
    plural: bool
    noun: Noun
    adjective: Adjective | None = None
    possessor: NounPhrase | None = None
    relative: Clause | None = None  # its subject or its object is missing: that is the gap

    @property
    def person(self) -> int:
        """Column of the verb that agrees with this phrase."""
        return THIRD_PLURAL if self.plural else THIRD


class Phrase(NamedTuple):
    """A preposition with its noun phrase."""

    preposition: Preposition
    object: NounPhrase


class Clause(NamedTuple):
    """One verb with what it governs. `form` is PRESENT, PAST or a modal."""

    subject: NounPhrase | Pronoun | None
    verb: Verb
    form: str | Modal
    negated: bool = False
    object: NounPhrase | Pronoun | None = None
    recipient: NounPhrase | Pronoun | None = None
    phrase: Phrase | None = None  # the verb's own, or of place or company
    predicate: Adjective | None = None
    time: Adverbial | None = None
    fronted: bool = False  # the time comes first


class Sentence(NamedTuple):
    """One or two clauses. `kind` is a key of KINDS."""

    kind: str
    main: Clause
    link: Conjunction | None = None
    other: Clause | None = None


STATEMENT, QUESTION, ADVERBIAL, FRONTED_ADVERBIAL, COMPLEMENT, COORDINATION = KINDS = (
    "statement",
    "question",
    "adverbial",
    "fronted adverbial",
    "complement",
    "coordination",
)
