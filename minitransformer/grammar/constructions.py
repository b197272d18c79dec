"""The grammatical constructions in a sentence: accuracy is reported for each."""

from __future__ import annotations

from collections.abc import Iterator

from .lexicon.function_words import MODALS, WILL
from .syntax import DATIVE, Clause, NounPhrase, Pronoun, Sentence

CONSTRUCTIONS = tuple(
    """
    simple sentence, question, coordination, subordinate clause, complement clause, relative clause,
    fronted adverbial, time adverbial, date, perfect, modal, future, separable verb, negation nicht,
    negation kein, adjective, predicate adjective, plural, number, possessive,
    genitive, dative, two objects, object pronoun, prepositional phrase, mass noun
    """.strip()
    .replace("\n    ", " ")
    .split(", ")
)
KIND_NAMES = {
    "statement": "simple sentence",
    "question": "question",
    "coordination": "coordination",
    "complement": "complement clause",
}
DETERMINER_NAMES = {"number": "number", "possessive": "possessive", "no": "negation kein", "mass": "mass noun"}


def constructions_of(sentence: Sentence) -> frozenset[str]:
    """Return the names, from CONSTRUCTIONS, of the constructions in a sentence."""
    kind = KIND_NAMES.get(sentence.kind, "subordinate clause")
    return frozenset([kind, *_clause(sentence.main), *(_clause(sentence.other) if sentence.other else ())])


def _clause(clause: Clause) -> Iterator[str]:
    verb, object, recipient = clause.verb, clause.object, clause.recipient
    if clause.form == "past" and clause.predicate is None:
        yield "perfect"
    if clause.form in MODALS:
        yield "modal"
    if clause.form == WILL:
        yield "future"
    if verb.prefix:
        yield "separable verb"
    if clause.predicate is not None:
        yield "predicate adjective"
    if clause.time is not None:
        yield "time adverbial"
        if clause.fronted:
            yield "fronted adverbial"
        if clause.time.is_date:
            yield "date"
    if clause.negated:
        yield "negation kein" if isinstance(object, NounPhrase) and object.indefinite else "negation nicht"
    if recipient is not None or (object is not None and verb.case == DATIVE):
        yield "dative"
    if recipient is not None:
        yield "two objects"
    if isinstance(object, Pronoun) or isinstance(recipient, Pronoun):
        yield "object pronoun"
    if clause.phrase is not None:
        yield "prepositional phrase"
    for phrase in (clause.subject, object, recipient, clause.phrase and clause.phrase.object):
        if isinstance(phrase, NounPhrase):
            yield from _noun_phrase(phrase)


def _noun_phrase(phrase: NounPhrase) -> Iterator[str]:
    name = phrase.determiner.name
    if phrase.adjective is not None:
        yield "adjective"
    if phrase.plural:
        yield "plural"
    if phrase.possessor is not None:
        yield "genitive"
        yield from _noun_phrase(phrase.possessor)
    if name in DETERMINER_NAMES:
        yield DETERMINER_NAMES[name]
    if phrase.relative is not None:
        yield "relative clause"
        yield from _clause(phrase.relative)
