"""English sentences back to derivations: a recursive-descent parser for the language of the grammar.

The parser takes more than the grammar generates: it minds neither agreement nor which words go together.
A reading counts only if it spells the very sentence that was read, so agreement needs no second description;
but for determiners, which are spelt the same beside a noun of either number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .english import sentence_text, sentence_tree
from .lexicon import function_words as words
from .lexicon.lexicon import Lexicon
from .lexicon.nouns import MASS
from .lexicon.verbs import TO_BE
from .syntax import (
    ADVERBIAL,
    COMPLEMENT,
    COORDINATION,
    FRONTED_ADVERBIAL,
    PAST,
    PRESENT,
    QUESTION,
    STATEMENT,
    Clause,
    NounPhrase,
    Phrase,
    Sentence,
)
from .words import Conjunction, Determiner

Table = dict[str, list[Any]]  # a word or an expression of several to what it may be
Reading = tuple[Any, int]  # something read, and the place after it
LONGEST = 5  # words in the longest expression: "on the 21st of March"
BE = {"am": PRESENT, "is": PRESENT, "are": PRESENT, "was": PAST, "were": PAST}
ALWAYS_SINGULAR = {words.A, words.THIS, words.EVERY, words.MASS}
ALWAYS_PLURAL = {words.BARE, words.THESE, words.SOME, words.MANY}  # and the numbers
SUPPORT = {"do": PRESENT, "does": PRESENT, "did": PAST}


def _table(entries: Iterable[tuple[str, Any]]) -> Table:
    table: Table = {}
    for key, value in entries:
        if value not in table.setdefault(key, []):
            table[key].append(value)
    return table


class Vocabulary:
    """The words of a lexicon, looked up by their English forms."""

    def __init__(self, lexicon: Lexicon):
        determiners = (
            *(each for each in lexicon.determiners if each.english),
            *lexicon.possessives,
            *lexicon.numbers,
        )
        self.determiners = _table([("an", words.A), *((each.english, each) for each in determiners)])
        self.plural_determiners = {*ALWAYS_PLURAL, *lexicon.numbers}
        nouns = [noun for kind in lexicon.nouns.values() for noun in kind]
        self.nouns = _table((noun.english[plural], (noun, plural)) for noun in nouns for plural in (False, True))
        self.adjectives = _table((each.english, each) for each in lexicon.adjectives)
        self.pronouns = [_table((each.english[case], each) for each in lexicon.pronouns) for case in (0, 1)]
        self.forms = _table(
            (form, (verb, tense))
            for verb in self._verbs(lexicon)
            for form, tense in zip(verb.english, (PRESENT, PRESENT, PAST), strict=True)
            if form
        )
        self.bases = _table((verb.english[0], verb) for verb in (TO_BE, *self._verbs(lexicon)))
        modals = (*lexicon.modals, words.WILL)
        self.modals = _table(
            (form, (modal, negated))
            for modal in modals
            for negated in (False, True)
            for form in (modal.negated if negated else modal.english)
        )
        entries = (*lexicon.prepositional, *lexicon.motion)
        own = [entry.preposition for entry in entries if entry.preposition is not None]
        self.prepositions = _table(
            (each.english, each) for each in (*lexicon.places, *lexicon.company, words.FOR, *own)
        )
        self.frames: dict[Any, set[str]] = {TO_BE: {"predicate"}}
        self._govern(lexicon)
        self.owned_by = {(entry.verb, entry.preposition) for entry in entries}
        self.free = {"alone": (*lexicon.places, *lexicon.company), "object": (*lexicon.places, words.FOR)}
        times = (*lexicon.past_times, *lexicon.present_times, *lexicon.future_times, *lexicon.dates)
        self.times = _table((time.english, time) for time in times)
        self.subordinators = _table((each.english, each) for each in lexicon.links)
        self.coordinators = _table((each.english, each) for each in lexicon.coordinators)

    @staticmethod
    def _verbs(lexicon: Lexicon) -> list[Any]:
        tables = (
            lexicon.intransitive,
            lexicon.transitive,
            lexicon.dative,
            lexicon.ditransitive,
            lexicon.prepositional,
            lexicon.motion,
        )
        return [*(entry.verb for table in tables for entry in table), *lexicon.clause_verbs]

    def _govern(self, lexicon: Lexicon) -> None:
        for frame, verbs in {
            "alone": [entry.verb for entry in lexicon.intransitive],
            "object": [entry.verb for entry in (*lexicon.transitive, *lexicon.dative)],
            "two objects": [entry.verb for entry in lexicon.ditransitive],
            "phrase": [entry.verb for entry in (*lexicon.prepositional, *lexicon.motion)],
            "clause": lexicon.clause_verbs,
        }.items():
            for verb in verbs:
                self.frames.setdefault(verb, set()).add(frame)


class Parser:
    """Reads one sentence; every method takes the place to start from and yields what it finds with the place after."""

    def __init__(self, vocabulary: Vocabulary, sentence: str):
        first = sentence if sentence.startswith("I ") else sentence[:1].lower() + sentence[1:]
        self.vocabulary = vocabulary
        self.question = sentence.endswith("?")
        self.tokens = first[:-1].replace(",", " ,").split()

    def sentences(self) -> Iterator[Sentence]:
        """Every sentence that the tokens may be, agreement aside."""
        if self.question:
            yield from (Sentence(QUESTION, main) for main, end in self._questions() if end == len(self.tokens))
            return
        for link, i in self._look_up(self.vocabulary.subordinators, 0):
            for other, j in self._clauses(i):
                yield from (
                    Sentence(FRONTED_ADVERBIAL, main, link, other)
                    for main, end in self._clauses(self._after(j, ","))
                    if end == len(self.tokens)
                )
        for main, i in self._clauses(0):
            if i == len(self.tokens):
                yield Sentence(STATEMENT, main)
            for kind, link, j in self._links(i, main):
                yield from (
                    Sentence(kind, main, link, other) for other, end in self._clauses(j) if end == len(self.tokens)
                )

    def _links(self, i: int, main: Clause) -> Iterator[tuple[str, Conjunction, int]]:
        if "clause" in self.vocabulary.frames[main.verb] and main.object is None:
            yield COMPLEMENT, words.THAT, self._after(i, "that")
        for link, j in self._look_up(self.vocabulary.subordinators, i):
            yield ADVERBIAL, link, j
        for link, j in self._look_up(self.vocabulary.coordinators, self._after(i, ",")):
            yield COORDINATION, link, j

    def _clauses(self, i: int) -> Iterator[tuple[Clause, int]]:
        for time, j in self._look_up(self.vocabulary.times, i):
            for clause, k in self._untimed(self._after(j, ",")):
                yield clause._replace(time=time, fronted=True), k
        for clause, j in self._untimed(i):
            yield clause, j
            for time, k in self._look_up(self.vocabulary.times, j):
                yield clause._replace(time=time), k

    def _untimed(self, i: int, gap: bool = False) -> Iterator[tuple[Clause, int]]:
        for subject, j in self._noun_phrases(i, 0):
            for clause, k in self._predicates(j, gap):
                yield clause._replace(subject=subject), k

    def _questions(self) -> Iterator[tuple[Clause, int]]:
        for subject, i in self._noun_phrases(1, 0):
            for clause, j in self._asked(i):
                for whole, k in self._complements(clause, j, gap=False):
                    yield whole._replace(subject=subject), k
                    for time, end in self._look_up(self.vocabulary.times, k):
                        yield whole._replace(subject=subject, time=time), end

    def _asked(self, i: int) -> Iterator[tuple[Clause, int]]:
        """The verb of a question, its auxiliary first in the sentence and the rest at i."""
        first = self.tokens[0]
        bases = self.vocabulary.bases
        if first in BE:
            yield Clause(None, TO_BE, BE[first]), i
        if first in SUPPORT:
            for verb, j in self._look_up(bases, i):
                yield Clause(None, verb, SUPPORT[first]), j
            for verb, j in self._look_up(bases, self._after(self._after(i, "want"), "to")):
                yield Clause(None, verb, words.WANT), j
        for modal, _ in self.vocabulary.modals.get(first, []):
            for verb, j in self._look_up(bases, i):
                yield Clause(None, verb, modal), j

    def _predicates(self, i: int, gap: bool = False) -> Iterator[tuple[Clause, int]]:
        """Verb and complements; with a gap, the object is missing."""
        for clause, j in self._verbs(i):
            yield from self._complements(clause, j, gap)

    def _verbs(self, i: int) -> Iterator[tuple[Clause, int]]:
        token = self.tokens[i] if i < len(self.tokens) else ""
        negated = self._after(i + 1, "not")
        if token in BE:
            yield Clause(None, TO_BE, BE[token]), i + 1
            yield Clause(None, TO_BE, BE[token], True), negated
        if token in SUPPORT:
            for verb, j in self._look_up(self.vocabulary.bases, negated):
                yield Clause(None, verb, SUPPORT[token], True), j
        for (modal, is_negated), j in self._look_up(self.vocabulary.modals, i):
            for verb, k in self._look_up(self.vocabulary.bases, j):
                yield Clause(None, verb, modal, is_negated), k
        for (verb, tense), j in self._look_up(self.vocabulary.forms, i):
            yield Clause(None, verb, tense), j

    def _complements(self, clause: Clause, i: int, gap: bool) -> Iterator[tuple[Clause, int]]:
        frames = self.vocabulary.frames[clause.verb]
        if gap:
            if "object" in frames:
                yield clause, i
            return
        if "predicate" in frames:
            for adjective, j in self._look_up(self.vocabulary.adjectives, i):
                yield clause._replace(predicate=adjective), j
        if "alone" in frames:
            yield from self._with_phrase(clause, i, "alone")
        if "clause" in frames:
            yield clause, i
        if "phrase" in frames:
            for phrase, j in self._phrases(i):
                if (clause.verb, phrase.preposition) in self.vocabulary.owned_by:
                    yield clause._replace(phrase=phrase), j
        for object, j in self._noun_phrases(i, 1) if frames & {"object", "two objects"} else ():
            if "object" in frames:
                yield from self._with_phrase(clause._replace(object=object), j, "object")
            if "two objects" in frames:
                for second, k in self._noun_phrases(j, 1):
                    yield clause._replace(recipient=object, object=second), k

    def _with_phrase(self, clause: Clause, i: int, frame: str) -> Iterator[tuple[Clause, int]]:
        yield clause, i
        if isinstance(clause.object, NounPhrase) and clause.object.relative is not None:
            return  # what follows belongs to the relative clause
        for phrase, j in self._phrases(i):
            if phrase.preposition in self.vocabulary.free[frame]:
                yield clause._replace(phrase=phrase), j

    def _phrases(self, i: int) -> Iterator[tuple[Phrase, int]]:
        for preposition, j in self._look_up(self.vocabulary.prepositions, i):
            for object, k in self._noun_phrases(j, 1):
                yield Phrase(preposition, object), k

    def _noun_phrases(self, i: int, case: int) -> Iterator[Reading]:
        yield from self._look_up(self.vocabulary.pronouns[case], i)
        determiners = [*self._look_up(self.vocabulary.determiners, i), (None, i)]
        for determiner, j in determiners:
            for phrase, k in self._described(determiner, j):
                yield phrase, k
                yield from self._relatives(phrase, k)

    def _described(self, determiner: Determiner | None, i: int) -> Iterator[tuple[NounPhrase, int]]:
        owner = self.tokens[i].removesuffix("'s") if i < len(self.tokens) else ""
        if determiner is not None and self.tokens[i : i + 1] == [owner + "'s"]:
            owners = self.vocabulary.nouns.get(owner, []) if self._agree(determiner, False) else ()
            for noun, _ in owners:
                possessor = NounPhrase(determiner, False, noun)
                for phrase, j in self._described(words.THE, i + 1):
                    yield phrase._replace(possessor=possessor), j
        for adjective, j in [*self._look_up(self.vocabulary.adjectives, i), (None, i)]:
            for (noun, plural), k in self._look_up(self.vocabulary.nouns, j):
                chosen = determiner or (words.MASS if noun.kind in MASS else words.BARE)
                if self._agree(chosen, plural):
                    yield NounPhrase(chosen, plural, noun, adjective), k

    def _agree(self, determiner: Determiner, plural: bool) -> bool:
        return determiner not in (ALWAYS_SINGULAR if plural else self.vocabulary.plural_determiners)

    def _relatives(self, phrase: NounPhrase, i: int) -> Iterator[tuple[NounPhrase, int]]:
        for j in (self._after(i, "who"), self._after(i, "that")):
            for clause, k in self._predicates(j):
                yield phrase._replace(relative=clause), k
        for clause, k in self._untimed(self._after(i, "that"), gap=True):
            yield phrase._replace(relative=clause), k

    def _look_up(self, table: Table, i: int) -> Iterator[Reading]:
        for j in range(i + 1, min(i + LONGEST, len(self.tokens)) + 1):
            for value in table.get(" ".join(self.tokens[i:j]), ()):
                yield value, j

    def _after(self, i: int, token: str) -> int:
        """The place after a token, or beyond the end, where nothing is found, if another stands there."""
        return i + 1 if i < len(self.tokens) and self.tokens[i] == token else len(self.tokens) + 1


def parse(sentence: str, vocabulary: Vocabulary) -> list[Sentence]:
    """All derivations of an English sentence: one, unless it is no sentence of the language."""
    found: list[Sentence] = []
    for reading in Parser(vocabulary, sentence).sentences():
        if reading not in found and sentence_text(sentence_tree(reading)) == sentence:
            found.append(reading)
    return found
