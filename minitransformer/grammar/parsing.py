"""A parser of English sentences back to derivations, by recursive descent.

The parser accepts more than the grammar generates: it checks neither agreement nor which words go together. A reading
counts only if it spells exactly the sentence that was read, so the parser needs no rules of agreement, except for
determiners: some are spelt the same before singular and plural nouns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .english import sentence_text, sentence_tree
from .lexicon import Lexicon
from .lexicon import function_words as words
from .lexicon.nouns import MASS
from .lexicon.verbs import TO_BE
from .syntax import Clause, Determiner, NounPhrase, Phrase, Sentence, Tense

Table = dict[str, list[Any]]  # the meanings of a word, or of an expression of several words
Reading = tuple[Any, int]  # the part that was read, and the place after it
LONGEST = 5  # words in the longest expression: "on the 21st of March"
BE: dict[str, Tense] = {"am": "present", "is": "present", "are": "present", "was": "past", "were": "past"}
ALWAYS_SINGULAR = {words.A, words.THIS, words.EVERY, words.MASS}
ALWAYS_PLURAL = {words.BARE, words.THESE, words.SOME, words.MANY}  # and the numbers
SUPPORT: dict[str, Tense] = {"do": "present", "does": "present", "did": "past"}


def _table(entries: Iterable[tuple[str, Any]]) -> Table:
    table: Table = {}
    for key, value in entries:
        if value not in table.setdefault(key, []):
            table[key].append(value)
    return table


class Vocabulary:
    """The words of a lexicon, looked up by their English forms."""

    def __init__(self, lexicon: Lexicon):
        determiners = [*lexicon.determiners, *lexicon.possessives, *lexicon.numbers]
        self.determiners = _table([("an", words.A), *((each.english, each) for each in determiners if each.english)])
        self.plural_determiners = {*ALWAYS_PLURAL, *lexicon.numbers}
        nouns = [noun for kind in lexicon.nouns.values() for noun in kind]
        self.nouns = _table((noun.english[plural], (noun, plural)) for noun in nouns for plural in (False, True))
        self.adjectives = _table((each.english, each) for each in lexicon.adjectives)
        self.pronouns = [_table((each.english[case], each) for each in lexicon.pronouns) for case in (0, 1)]
        self.frames: dict[Any, set[str]] = {TO_BE: {"predicate"}}
        for frame, verbs in lexicon.verbs().items():
            for verb in verbs:
                self.frames.setdefault(verb, set()).add(frame)
        self.bases = _table((verb.english[0], verb) for verb in self.frames)
        self.forms = _table(
            (form, (verb, tense))
            for verb in self.frames
            for form, tense in zip(verb.english, ("present", "present", "past"), strict=True)
            if form and verb is not TO_BE
        )
        modals = [
            (form, (modal, negated))
            for modal in (*lexicon.modals, words.WILL)
            for negated, forms in ((False, modal.english), (True, modal.negated))
            for form in forms
        ]
        asked = [(f"{do} want to", (words.WANT, False)) for do in ("do", "does")]  # does he want to sleep?
        self.modals = _table([*modals, *asked])
        entries = (*lexicon.prepositional, *lexicon.motion)
        self.governed = {(entry.verb, entry.preposition) for entry in entries}
        self.free = {"alone": (*lexicon.places, *lexicon.company), "object": (*lexicon.places, words.FOR)}
        prepositions = [*self.free["alone"], words.FOR, *(entry.preposition for entry in entries)]
        self.prepositions = _table((each.english, each) for each in prepositions if each)
        times = (*lexicon.past_times, *lexicon.present_times, *lexicon.future_times, *lexicon.dates)
        self.times = _table((time.english, time) for time in times)
        self.subordinators = _table((each.english, each) for each in lexicon.links)
        self.coordinators = _table((each.english, each) for each in lexicon.coordinators)


class Parser:
    """Reads one sentence. A method takes a token's place, and yields each reading from there and the place after it."""

    def __init__(self, vocabulary: Vocabulary, tokens: list[str]):
        self.vocabulary = vocabulary
        self.tokens = tokens

    def statements(self) -> Iterator[tuple[Sentence, int]]:
        """Yield every statement with which the tokens may begin; agreement is not checked."""
        for link, i in self._look_up(self.vocabulary.subordinators, 0):
            for other, j in self._clauses(i):
                for main, end in self._clauses(self._after(j, ",")):
                    yield Sentence("fronted adverbial", main, link, other), end
        for main, i in self._clauses(0):
            yield Sentence("statement", main), i
            if "clause" in self.vocabulary.frames[main.verb] and main.object is None:
                for other, end in self._clauses(self._after(i, "that")):
                    yield Sentence("complement", main, words.THAT, other), end
            for link, j in self._look_up(self.vocabulary.subordinators, i):
                for other, end in self._clauses(j):
                    yield Sentence("adverbial", main, link, other), end
            for link, j in self._look_up(self.vocabulary.coordinators, self._after(i, ",")):
                for other, end in self._clauses(j):
                    yield Sentence("coordination", main, link, other), end

    def questions(self) -> Iterator[tuple[Sentence, int]]:
        """Yield every question, read as a statement with its first word, the auxiliary, moved behind the subject."""
        for subject, i in self._noun_phrases(1, 0):
            moved = Parser(self.vocabulary, [*self.tokens[1:i], self.tokens[0], *self.tokens[i:]])
            for clause, end in moved._timed(moved._predicates(i - 1)):
                if not clause.negated:
                    yield Sentence("question", clause._replace(subject=subject)), end

    def _clauses(self, i: int) -> Iterator[tuple[Clause, int]]:
        for time, j in self._look_up(self.vocabulary.times, i):
            for clause, k in self._untimed(self._after(j, ",")):
                yield clause._replace(time=time, fronted=True), k
        yield from self._timed(self._untimed(i))

    def _timed(self, clauses: Iterable[tuple[Clause, int]]) -> Iterator[tuple[Clause, int]]:
        """Yield each clause without and with an expression of time after it."""
        for clause, i in clauses:
            yield clause, i
            for time, j in self._look_up(self.vocabulary.times, i):
                yield clause._replace(time=time), j

    def _untimed(self, i: int, gap: bool = False) -> Iterator[tuple[Clause, int]]:
        for subject, j in self._noun_phrases(i, 0):
            for clause, k in self._predicates(j, gap):
                yield clause._replace(subject=subject), k

    def _predicates(self, i: int, gap: bool = False) -> Iterator[tuple[Clause, int]]:
        """Yield verb and complements; with a gap, the object is missing."""
        for clause, j in self._verbs(i):
            if not gap:
                yield from self._complements(clause, j)
            elif "object" in self.vocabulary.frames[clause.verb]:
                yield clause, j

    def _verbs(self, i: int) -> Iterator[tuple[Clause, int]]:
        token = self.tokens[i] if i < len(self.tokens) else ""
        negated = self._after(i + 1, "not")
        if token in BE:
            yield Clause(None, TO_BE, BE[token]), i + 1
            yield Clause(None, TO_BE, BE[token], True), negated
        if token in SUPPORT:
            for is_negated, j in ((False, i + 1), (True, negated)):
                for verb, k in self._look_up(self.vocabulary.bases, j):
                    yield Clause(None, verb, SUPPORT[token], is_negated), k
        for (modal, is_negated), j in self._look_up(self.vocabulary.modals, i):
            for verb, k in self._look_up(self.vocabulary.bases, j):
                yield Clause(None, verb, modal, is_negated), k
        for (verb, tense), j in self._look_up(self.vocabulary.forms, i):
            yield Clause(None, verb, tense), j

    def _complements(self, clause: Clause, i: int) -> Iterator[tuple[Clause, int]]:
        frames = self.vocabulary.frames[clause.verb]
        if "predicate" in frames:
            for adjective, j in self._look_up(self.vocabulary.adjectives, i):
                yield clause._replace(predicate=adjective), j
        if "alone" in frames:
            yield from self._with_phrase(clause, i, "alone")
        if "clause" in frames:
            yield clause, i
        if "phrase" in frames:
            for phrase, j in self._phrases(i):
                if (clause.verb, phrase.preposition) in self.vocabulary.governed:
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
        for determiner, j in [*self._look_up(self.vocabulary.determiners, i), (None, i)]:
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
        """Return the place after `token`; if another token is there, a place beyond the end, where nothing is found."""
        return i + 1 if i < len(self.tokens) and self.tokens[i] == token else len(self.tokens) + 1


def parse(sentence: str, vocabulary: Vocabulary) -> list[Sentence]:
    """Return all derivations of an English sentence: one, or none if the grammar does not form the sentence."""
    first = sentence if sentence.startswith("I ") else sentence[:1].lower() + sentence[1:]
    parser = Parser(vocabulary, first[:-1].replace(",", " ,").split())
    found: list[Sentence] = []
    for reading, end in parser.questions() if sentence.endswith("?") else parser.statements():
        whole = end == len(parser.tokens) and reading not in found
        if whole and sentence_text(sentence_tree(reading)) == sentence:
            found.append(reading)
    return found
