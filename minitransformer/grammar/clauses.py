"""Which clauses the grammar forms: verbs with what they govern, in every tense, positive and negated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .lexicon import function_words as words
from .lexicon.lexicon import Lexicon
from .lexicon.nouns import GROUPS
from .lexicon.verbs import TO_BE, Entry
from .noun_phrases import NEGATED_OBJECT, OBJECT, OBLIQUE, PLAIN_SUBJECT, SUBJECT, NounPhrases
from .spaces import Choice, Record, Space, Union
from .syntax import PAST, PRESENT, Clause, NounPhrase


class Style(NamedTuple):
    """How rich a clause is. The numbers are weights."""

    pronoun: int = 8  # pronouns as subject, against 10 noun phrases
    relative: int = 0  # noun phrases with a relative clause, against 10 without
    negated: int = 1  # against 3 positive
    untimed: int = 8
    timed: int = 1
    fronted: int = 0
    tenses: tuple[str, ...] = ("present", "past", "modal", "future")
    quantified: bool = True  # subjects with "no", "every", "some", "many" or a number
    gap: bool = False  # the subject is a relative pronoun


class Slot(NamedTuple):
    """What every clause of one tense, polarity and place of the time has in common."""

    weight: int
    fields: dict
    positive: bool
    open: bool  # positive, and no time follows: room for a relative clause


RELATIVE_STYLE = Style(negated=0, untimed=1, timed=0, gap=True)
TENSE_WEIGHTS = {"present": 5, "past": 4, "modal": 3, "future": 1}
# Kinds of nouns that "is" describes.
DESCRIBED = {
    "person": 3,
    "relation": 3,
    "parent": 1,
    "pet": 2,
    "animal": 1,
    "thing": 1,
    "goods": 1,
    "garment": 1,
    "place": 1,
    "area": 1,
    "room": 1,
    "text": 1,
    "meal": 1,
    "drink": 1,
}


class Clauses:
    """Spaces of clauses over a lexicon."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self.noun_phrases = NounPhrases(lexicon)
        self._known: dict[Style, Space] = {}
        self._relatives: dict[str, Space] = {}

    def of(self, style: Style) -> Space:
        """Clauses of every kind of verb."""
        if style not in self._known:
            lexicon = self.lexicon
            self._known[style] = Union(
                (6, self._each(self._intransitive, lexicon.intransitive, style)),
                (14, self._each(self._transitive, lexicon.transitive, style)),
                (5, self._each(self._dative, lexicon.dative, style)),
                (5, self._each(self._ditransitive, lexicon.ditransitive, style)),
                (4, self._each(self._prepositional, lexicon.prepositional, style)),
                (3, self._each(self._prepositional, lexicon.motion, style)),
                (4, Union(*((weight, self._predicative(kind, style)) for kind, weight in DESCRIBED.items()))),
            )
        return self._known[style]

    def _each(self, rule: Callable[[Entry, Space, Style], Space], entries: Iterable[Entry], style: Style) -> Space:
        """A rule over entries, each verb as likely as the others; verbs of the same government share one space."""
        groups: dict[tuple, list[Entry]] = {}
        for entry in entries:
            groups.setdefault((entry[1:], not entry.verb.english[2]), []).append(entry)
        return Union(
            *((len(group), rule(group[0], Choice([entry.verb for entry in group]), style)) for group in groups.values())
        )

    def _intransitive(self, entry: Entry, verbs: Space, style: Style) -> Space:
        place = self.noun_phrases.phrases(self.lexicon.places, GROUPS["building"])
        company = self.noun_phrases.phrases(self.lexicon.company, GROUPS["people"])
        return self._spread(
            entry,
            verbs,
            style,
            lambda slot: [
                (3, {}),
                (4 * entry.place, {"phrase": place}),
                (2 * ("animal" not in entry.subjects), {"phrase": company}),
            ],
        )

    def _transitive(self, entry: Entry, verbs: Space, style: Style) -> Space:
        place = self.noun_phrases.phrases(self.lexicon.places, GROUPS["building"])
        beneficiary = self.noun_phrases.phrases((words.FOR,), GROUPS["people"])
        somewhere = "place" not in entry.objects and not entry.stative

        def fields(slot: Slot) -> list[tuple[int, dict]]:
            object = self.noun_phrases.of(entry.objects, OBJECT if slot.positive else NEGATED_OBJECT)
            return [
                (9, {"object": object}),
                *self._object_pronouns("object", entry, style),
                (4 * (slot.positive and entry.beneficiary), {"object": object, "phrase": beneficiary}),
                (2 * (slot.positive and somewhere), {"object": object, "phrase": place}),
                (style.relative * slot.open, {"object": self._relative_of(entry.objects, style)}),
            ]

        return self._spread(entry, verbs, style, fields)

    def _dative(self, entry: Entry, verbs: Space, style: Style) -> Space:
        return self._spread(
            entry,
            verbs,
            style,
            lambda slot: [
                (8, {"object": self.noun_phrases.of(entry.objects, OBJECT if slot.positive else PLAIN_SUBJECT)}),
                *self._object_pronouns("object", entry, style),
                (style.relative * slot.open, {"object": self._relative_of(GROUPS["people"], style)}),
            ],
        )

    def _ditransitive(self, entry: Entry, verbs: Space, style: Style) -> Space:
        recipient = self.noun_phrases.of(GROUPS["people"], PLAIN_SUBJECT)

        def fields(slot: Slot) -> list[tuple[int, dict]]:
            object = self.noun_phrases.of(entry.objects, OBJECT if slot.positive else NEGATED_OBJECT)
            pronouns = self._object_pronouns("recipient", entry._replace(objects=GROUPS["people"]), style)
            return [
                (8, {"object": object, "recipient": recipient}),
                *((weight, {"object": object} | pronoun) for weight, pronoun in pronouns),
            ]

        return self._spread(entry, verbs, style, fields)

    def _prepositional(self, entry: Entry, verbs: Space, style: Style) -> Space:
        # a motion to or from somewhere wants a place that is known: "aller à une ville" is no French
        known = "place" in entry.objects and "room" not in entry.objects
        return self._spread(
            entry,
            verbs,
            style,
            lambda slot: [
                (
                    1,
                    {
                        "phrase": self.noun_phrases.phrases(
                            (entry.preposition,),
                            entry.objects,
                            OBLIQUE if slot.positive and not known else PLAIN_SUBJECT,
                        )
                    },
                )
            ],
        )

    def _predicative(self, kind: str, style: Style) -> Space:
        tenses = tuple(tense for tense in style.tenses if tense in ("present", "past"))
        sober = style._replace(
            tenses=tenses,
            untimed=3 * style.untimed,
            timed=style.timed * (kind in GROUPS["people"]),
            fronted=style.fronted * (kind in GROUPS["people"]),
        )
        adjectives = Choice([each for each in self.noun_phrases.adjectives(kind).words if each.predicative])
        entry = Entry(TO_BE, (kind,))
        return self._spread(entry, Choice((TO_BE,)), sober, lambda slot: [(1, {"predicate": adjectives})])

    def _spread(
        self, entry: Entry, verbs: Space, style: Style, fields: Callable[[Slot], list[tuple[int, dict]]]
    ) -> Space:
        """Clauses with these verbs in every slot; `fields` lists what else they may hold, with weights."""
        return Union(
            *(
                (
                    slot.weight * weight,
                    Record(
                        Clause,
                        subject=self.subject(entry.subjects, style, slot.positive),
                        verb=verbs,
                        **slot.fields,
                        **others,
                    ),
                )
                for slot in self._slots(style, entry)
                for weight, others in fields(slot)
                if slot.weight * weight
            )
        )

    def _slots(self, style: Style, entry: Entry) -> Iterator[Slot]:
        """Tense, polarity and time of a clause."""
        lexicon = self.lexicon
        tenses = {
            "present": (PRESENT, lexicon.present_times, ()),
            "past": (PAST, lexicon.past_times, lexicon.dates),
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

    def subject(self, kinds: tuple[str, ...], style: Style, positive: bool) -> Space | None:
        if style.gap:
            return None
        role = SUBJECT if positive and style.quantified else PLAIN_SUBJECT
        return Union(
            (style.pronoun, Choice(self.lexicon.pronouns if kinds[0] == "person" else ())),
            (10, self.noun_phrases.of(kinds, role)),
            (style.relative, self._relative_of(kinds, style)),
        )

    def _object_pronouns(self, field: str, entry: Entry, style: Style) -> list[tuple[int, dict]]:
        """Pronouns as objects of verbs that take persons only; "me" and "us" are left to relative clauses."""
        if not set(entry.objects) <= {*GROUPS["people"], *GROUPS["animals"]}:
            return []
        allowed = (words.HE, words.SHE, words.THEY, *((words.I, words.WE) if style.gap else ()))
        return [(3, {field: self.noun_phrases.pronouns(*allowed)})]

    def _relative_of(self, kinds: tuple[str, ...], style: Style) -> Space:
        """Noun phrases with a relative clause: the man who sleeps, the book that she buys."""
        if not style.relative:  # relative clauses hold none themselves
            return Choice(())
        return Union(*((len(self.lexicon.nouns.get(kind, ())), self._relative(kind)) for kind in kinds))

    def _relative(self, kind: str) -> Space:
        if kind not in self._relatives:
            described = (*GROUPS["people"], *GROUPS["animals"])
            relative = self._about_subject(kind) if kind in described else self._about_object(kind)
            noun = Choice(self.lexicon.nouns.get(kind, ()))
            the, a = (self.noun_phrases.determiner(article) for article in (words.THE, words.A))
            self._relatives[kind] = Union(
                (5, Record(NounPhrase, determiner=the, plural=False, noun=noun, relative=relative)),
                (1, Record(NounPhrase, determiner=a, plural=False, noun=noun, relative=relative)),
                (2, Record(NounPhrase, determiner=the, plural=True, noun=noun, relative=relative)),
            )
        return self._relatives[kind]

    def _about_subject(self, kind: str) -> Space:
        """Relative clauses whose subject is the pronoun: who sleeps in the garden."""
        lexicon, style = self.lexicon, RELATIVE_STYLE
        weighted = (
            (3, self._intransitive, lexicon.intransitive),
            (4, self._transitive, lexicon.transitive),
            (2, self._dative, lexicon.dative),
        )
        return Union(
            *(
                (weight, self._each(rule, [entry for entry in entries if kind in entry.subjects], style))
                for weight, rule, entries in weighted
            ),
            (1, self._predicative(kind, style)),
        )

    def _about_object(self, kind: str) -> Space:
        """Relative clauses whose object is the pronoun: that she buys."""
        style = RELATIVE_STYLE._replace(gap=False)
        entries = [
            entry._replace(subjects=GROUPS["people"]) for entry in self.lexicon.transitive if kind in entry.objects
        ]
        return self._each(
            lambda entry, verbs, style: self._spread(entry, verbs, style, lambda slot: [(1, {})]), entries, style
        )
