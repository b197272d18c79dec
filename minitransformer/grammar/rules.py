"""The rules of the grammar: the sentences that it forms, and how often each kind is drawn.

A verb and what it governs make a clause, in every tense, positive or negated; one or two clauses make a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .lexicon import Lexicon
from .lexicon import function_words as words
from .lexicon.nouns import GROUPS
from .lexicon.verbs import TO_BE, Entry
from .noun_phrases import NounPhrases
from .spaces import Choice, Record, Space, Union
from .syntax import Clause, Sentence


class Style(NamedTuple):
    """The parts that a clause may contain; numbers are weights."""

    pronoun: int = 8  # pronouns as subject, against 10 noun phrases
    relative: int = 0  # noun phrases with a relative clause, against 10 without
    negated: int = 1  # against 3 positive
    untimed: int = 8
    timed: int = 1
    fronted: int = 0
    tenses: tuple[str, ...] = ("present", "past", "modal", "future")
    quantified: bool = True  # subjects with "no", "every", "some", "many" or a number
    gap: bool = False  # the subject is a relative pronoun


STATEMENT = Style(pronoun=3, relative=3, untimed=3, timed=3, fronted=4)
MAIN = Style(timed=0, fronted=2)
SUBORDINATE = Style()
QUESTION = Style(pronoun=4, relative=2, negated=0, untimed=3, timed=2, quantified=False)
RELATIVE = Style(negated=0, untimed=1, timed=0, gap=True)
CURRENT, PAST = ("present", "modal", "future"), ("past",)
TENSE_WEIGHTS = {"present": 5, "past": 4, "modal": 3, "future": 1}
WITH_PRONOUN = {*GROUPS["people"], *GROUPS["animals"]}  # kinds of objects that a pronoun may replace
# Kinds of nouns that "is" describes.
DESCRIBED = {"person": 3, "relation": 3, "parent": 1, "pet": 2, "animal": 1, "thing": 1, "goods": 1, "garment": 1}
DESCRIBED |= {"place": 1, "area": 1, "room": 1, "text": 1, "meal": 1, "drink": 1}


class Slot(NamedTuple):
    """The weight and the fields that all clauses with the same tense, polarity and place of the time share."""

    weight: int
    fields: dict
    positive: bool
    open: bool  # positive, with no expression of time at its end: a relative clause may follow


Rule = Callable[[Entry, Style, Slot], list[tuple[int, dict]]]  # gives the other fields of a clause, with weights


class Grammar:
    """The language over a lexicon: `sentences` is the space of its derivations."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self.noun_phrases = NounPhrases(lexicon)
        self._clauses: dict[Style, Space] = {}
        self._relatives: dict[str, Space] = {}
        statements, questions = self.clauses(STATEMENT), self.clauses(QUESTION)
        self.sentences: Space = Union(
            (40, Record(Sentence, kind="statement", main=statements)),
            (8, Record(Sentence, kind="question", main=questions)),
            (20, self._with_subordinate("adverbial", MAIN)),
            (8, self._with_subordinate("fronted adverbial", MAIN._replace(fronted=0))),
            (12, self._complements()),
            (12, self._coordinations()),
        )

    def _with_subordinate(self, kind: str, style: Style) -> Space:
        """Return two clauses linked by "because", "if" or "while", in tenses that go together."""
        current, past = (self.clauses(style._replace(tenses=tenses)) for tenses in (CURRENT, PAST))
        present, because, because_past = (
            self.clauses(SUBORDINATE._replace(tenses=tenses)) for tenses in (("present",), CURRENT, PAST)
        )
        links = Choice([link for link in self.lexicon.links if link is not words.BECAUSE])
        return Union(
            (3, Record(Sentence, kind=kind, main=current, link=links, other=present)),
            (2, Record(Sentence, kind=kind, main=current, link=words.BECAUSE, other=because)),
            (2, Record(Sentence, kind=kind, main=past, link=words.BECAUSE, other=because_past)),
        )

    def _complements(self) -> Space:
        """Return a verb of saying or thinking with a clause: she knows that he sleeps."""
        subject = self._subject(GROUPS["people"], SUBORDINATE, positive=False)
        main = Record(Clause, subject=subject, verb=Choice(self.lexicon.clause_verbs), form="present")
        return Record(Sentence, kind="complement", main=main, link=words.THAT, other=self.clauses(SUBORDINATE))

    def _coordinations(self) -> Space:
        """Return two main clauses of the same time joined by "and" or "but"."""
        links = Choice(self.lexicon.coordinators)
        same_time = [self.clauses(SUBORDINATE._replace(tenses=tenses)) for tenses in (CURRENT, PAST)]
        return Union(*((1, Record(Sentence, kind="coordination", main=c, link=links, other=c)) for c in same_time))

    def clauses(self, style: Style) -> Space:
        """Return clauses of every kind of verb."""
        if style not in self._clauses:
            lexicon = self.lexicon
            self._clauses[style] = Union(
                (6, self._each(self._intransitive, lexicon.intransitive, style)),
                (14, self._each(self._transitive, lexicon.transitive, style)),
                (5, self._each(self._dative, lexicon.dative, style)),
                (5, self._each(self._ditransitive, lexicon.ditransitive, style)),
                (4, self._each(self._prepositional, lexicon.prepositional, style)),
                (3, self._each(self._prepositional, lexicon.motion, style)),
                (4, Union(*((weight, self._predicative(kind, style)) for kind, weight in DESCRIBED.items()))),
            )
        return self._clauses[style]

    def _each(self, rule: Rule, entries: Iterable[Entry], style: Style) -> Space:
        """Return the clauses of a rule, all verbs equally likely; verbs with the same government share one space."""
        groups: dict[tuple, list[Entry]] = {}
        for entry in entries:
            groups.setdefault((entry[1:], not entry.verb.english[2]), []).append(entry)
        return Union(*((len(group), self._spread(rule, group, style)) for group in groups.values()))

    def _spread(self, rule: Rule, group: list[Entry], style: Style) -> Space:
        """Return the clauses with these verbs in every slot."""
        entry, verbs = group[0], Choice([each.verb for each in group])
        subjects = {positive: self._subject(entry.subjects, style, positive) for positive in (True, False)}
        return Union(
            *(
                (
                    slot.weight * weight,
                    Record(Clause, subject=subjects[slot.positive], verb=verbs, **slot.fields, **others),
                )
                for slot in self._slots(style, entry)
                if slot.weight
                for weight, others in rule(entry, style, slot)
                if weight
            )
        )

    def _slots(self, style: Style, entry: Entry) -> Iterator[Slot]:
        """Yield every combination of tense, polarity and time that a clause with this verb may have."""
        lexicon = self.lexicon
        tenses = {
            "present": ("present", lexicon.present_times, ()),
            "past": ("past", lexicon.past_times, lexicon.dates),
            "modal": (Choice(lexicon.modals), lexicon.future_times, lexicon.dates),
            "future": (words.WILL, lexicon.future_times, lexicon.dates),
        }
        for tense in style.tenses:
            if (entry.stative and tense != "present") or (tense == "past" and not entry.verb.english[2]):
                continue
            form, times, dates = tenses[tense]
            for negated, polarity in ((False, 3), (True, style.negated)):
                weight, fields = TENSE_WEIGHTS[tense] * polarity, {"form": form, "negated": negated}
                yield Slot(weight * style.untimed, fields, not negated, not negated)
                if not entry.stative:
                    usual = Choice([time for time in times if not (negated and time.positive)])
                    timed = fields | {"time": Union((1, usual), (1, Choice(dates)))}
                    yield Slot(weight * style.timed, timed, not negated, False)
                    yield Slot(weight * style.fronted, timed | {"fronted": True}, not negated, not negated)

    def _intransitive(self, entry: Entry, style: Style, slot: Slot) -> list[tuple[int, dict]]:
        return [
            (3, {}),
            (4 * entry.place, {"phrase": self._place()}),
            (2 * ("animal" not in entry.subjects), {"phrase": self._people(self.lexicon.company)}),
        ]

    def _transitive(self, entry: Entry, style: Style, slot: Slot) -> list[tuple[int, dict]]:
        object = self.noun_phrases.of(entry.objects, "object" if slot.positive else "negated object")
        somewhere = "place" not in entry.objects and not entry.stative
        return [
            (9, {"object": object}),
            *self._object_pronouns("object", entry.objects, style),
            (4 * (slot.positive and entry.beneficiary), {"object": object, "phrase": self._people((words.FOR,))}),
            (2 * (slot.positive and somewhere), {"object": object, "phrase": self._place()}),
            (style.relative * slot.open, {"object": self._with_relative(entry.objects, style)}),
        ]

    def _dative(self, entry: Entry, style: Style, slot: Slot) -> list[tuple[int, dict]]:
        return [
            (8, {"object": self.noun_phrases.of(entry.objects, "object" if slot.positive else "plain subject")}),
            *self._object_pronouns("object", entry.objects, style),
            (style.relative * slot.open, {"object": self._with_relative(GROUPS["people"], style)}),
        ]

    def _ditransitive(self, entry: Entry, style: Style, slot: Slot) -> list[tuple[int, dict]]:
        object = self.noun_phrases.of(entry.objects, "object" if slot.positive else "negated object")
        recipient = self.noun_phrases.of(GROUPS["people"], "plain subject")
        pronouns = self._object_pronouns("recipient", GROUPS["people"], style)
        recipients = [(8, {"recipient": recipient}), *pronouns]
        return [(weight, {"object": object} | recipient) for weight, recipient in recipients]

    def _prepositional(self, entry: Entry, style: Style, slot: Slot) -> list[tuple[int, dict]]:
        # a motion to or from a place needs a definite one: "aller à une ville" is not French
        known = "place" in entry.objects and "room" not in entry.objects
        role = "oblique" if slot.positive and not known else "plain subject"
        return [(1, {"phrase": self.noun_phrases.phrases((entry.preposition,), entry.objects, role)})]

    def _predicative(self, kind: str, style: Style) -> Space:
        timed = kind in GROUPS["people"]
        reduced = style._replace(
            tenses=tuple(tense for tense in style.tenses if tense in ("present", "past")),
            untimed=3 * style.untimed,
            timed=style.timed * timed,
            fronted=style.fronted * timed,
        )
        adjectives = Choice([each for each in self.noun_phrases.adjectives(kind).words if each.predicative])
        return self._spread(lambda *_: [(1, {"predicate": adjectives})], [Entry(TO_BE, (kind,))], reduced)

    def _subject(self, kinds: tuple[str, ...], style: Style, positive: bool) -> Space | None:
        if style.gap:
            return None
        role = "subject" if positive and style.quantified else "plain subject"
        return Union(
            (style.pronoun, Choice(self.lexicon.pronouns if kinds[0] == "person" else ())),
            (10, self.noun_phrases.of(kinds, role)),
            (style.relative, self._with_relative(kinds, style)),
        )

    def _object_pronouns(self, field: str, kinds: tuple[str, ...], style: Style) -> list[tuple[int, dict]]:
        """Return object pronouns of verbs that take only persons or animals; "me" and "us" only in relative clauses."""
        if not WITH_PRONOUN.issuperset(kinds):
            return []
        allowed = (words.HE, words.SHE, words.THEY, *((words.I, words.WE) if style.gap else ()))
        return [(3, {field: Choice([pronoun for pronoun in self.lexicon.pronouns if pronoun in allowed])})]

    def _place(self) -> Space:
        return self.noun_phrases.phrases(self.lexicon.places, GROUPS["building"])

    def _people(self, prepositions: tuple) -> Space:
        return self.noun_phrases.phrases(prepositions, GROUPS["people"])

    def _with_relative(self, kinds: tuple[str, ...], style: Style) -> Space:
        """Return noun phrases with a relative clause: the man who sleeps, the book that she buys."""
        if not style.relative:  # a relative clause contains no other
            return Choice(())
        for kind in set(kinds) - self._relatives.keys():
            relative = self._about_subject(kind) if kind in WITH_PRONOUN else self._about_object(kind)
            self._relatives[kind] = self.noun_phrases.with_relative(kind, relative)
        return self.noun_phrases.each_kind(kinds, self._relatives.__getitem__)

    def _about_subject(self, kind: str) -> Space:
        """Return relative clauses whose subject is the relative pronoun: who sleeps in the garden."""
        verbs = (
            (3, self._intransitive, self.lexicon.intransitive),
            (4, self._transitive, self.lexicon.transitive),
            (2, self._dative, self.lexicon.dative),
        )
        return Union(
            *(
                (weight, self._each(rule, [entry for entry in entries if kind in entry.subjects], RELATIVE))
                for weight, rule, entries in verbs
            ),
            (1, self._predicative(kind, RELATIVE)),
        )

    def _about_object(self, kind: str) -> Space:
        """Return relative clauses whose object is the relative pronoun: that she buys."""
        entries = [each._replace(subjects=GROUPS["people"]) for each in self.lexicon.transitive if kind in each.objects]
        return self._each(lambda *_: [(1, {})], entries, RELATIVE._replace(gap=False))
