"""Which noun phrases the grammar forms: determiners, adjectives and possessors by the phrase's role."""

from __future__ import annotations

from functools import cached_property

from .lexicon import function_words as words
from .lexicon.lexicon import Lexicon
from .lexicon.nouns import GROUPS, MASS
from .spaces import Choice, Record, Space, Union
from .syntax import NounPhrase, Phrase
from .words import Determiner, Pronoun

SUBJECT, PLAIN_SUBJECT, OBJECT, NEGATED_OBJECT, OBLIQUE = (
    "subject",
    "plain subject",
    "object",
    "negated object",
    "oblique",
)
Weights = dict[Determiner | str, int]  # a name stands for all the words of a group
# Weights of the determiners by role. A plain subject and a negated object have no quantifier, since its scope
# over "not" would be open; plurals without an article are objects only, where French has "des".
SINGULAR: dict[str, Weights] = {
    SUBJECT: {words.THE: 6, "possessive": 3, words.THIS: 1, words.A: 1, words.EVERY: 1, words.NO: 1},
    PLAIN_SUBJECT: {words.THE: 6, "possessive": 3, words.THIS: 1},
    OBJECT: {words.THE: 4, words.A: 4, "possessive": 2, words.THIS: 1},
    NEGATED_OBJECT: {words.THE: 2, words.A: 3, "possessive": 2, words.THIS: 1},
    OBLIQUE: {words.THE: 5, words.A: 2, "possessive": 2, words.THIS: 1},
}
PLURAL: dict[str, Weights] = {
    SUBJECT: {words.THE: 4, "possessive": 1, words.THESE: 1, "number": 3, words.SOME: 1, words.MANY: 1},
    PLAIN_SUBJECT: {words.THE: 4, "possessive": 1, words.THESE: 1},
    OBJECT: {words.THE: 2, "possessive": 1, words.BARE: 2, "number": 4, words.MANY: 1},
    NEGATED_OBJECT: {words.THE: 1, "possessive": 1, words.BARE: 2},
    OBLIQUE: {words.THE: 3, "possessive": 1},
}
# Nobody says "my queen", "our wolf" or "their station".
NEVER_OWNED = ("person", "animal", "place")
OWNED = ("relation", "parent", "pet", "text", *GROUPS["object"], *GROUPS["clothing"], "room")


class NounPhrases:
    """Spaces of noun phrases over a lexicon."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self._known: dict[tuple, Space] = {}

    def of(self, kinds: tuple[str, ...], role: str, possessor: bool = True) -> Space:
        """Noun phrases of some kinds of nouns in a role, without relative clause."""
        key = (kinds, role, possessor)
        if key not in self._known:
            self._known[key] = Union(
                *((len(self.lexicon.nouns.get(kind, ())), self._of_kind(kind, role, possessor)) for kind in kinds)
            )
        return self._known[key]

    def _of_kind(self, kind: str, role: str, possessor: bool) -> Space:
        singular: Weights = dict(SINGULAR[role])
        plural: Weights = dict(PLURAL[role])
        if kind in MASS:
            singular = {words.THE: 2, "possessive": 1}
            if role in (OBJECT, NEGATED_OBJECT):
                singular[words.MASS] = 7
            plural.clear()
        if kind in NEVER_OWNED:
            del singular["possessive"], plural["possessive"]
        if kind == "parent":  # nobody counts mothers
            plural = {words.THE: 1}
        return Union(
            (11, self._described(kind, False, self._determiners(singular))),
            (7, self._described(kind, True, self._determiners(plural))),
            (2, self._owned(kind) if possessor and kind in OWNED else Choice(())),
        )

    def _described(self, kind: str, plural: bool, determiners: Space) -> Space:
        """Noun phrases with and without an adjective."""
        fields = {"determiner": determiners, "plural": plural, "noun": Choice(self.lexicon.nouns.get(kind, ()))}
        return Union(
            (3, Record(NounPhrase, **fields)),
            (2, Record(NounPhrase, **fields, adjective=self.adjectives(kind))),
        )

    def _owned(self, kind: str) -> Space:
        """Noun phrases with a possessor: the teacher's old dog."""
        fields = {"determiner": words.THE, "noun": Choice(self.lexicon.nouns.get(kind, ())), "possessor": self._owners}
        return Union(
            (2, Record(NounPhrase, plural=False, **fields)),
            (0 if kind == "parent" else 1, Record(NounPhrase, plural=True, **fields)),
            (1, Record(NounPhrase, plural=False, **fields, adjective=self.adjectives(kind))),
        )

    @cached_property
    def _owners(self) -> Space:
        """Singular persons: the hunter's, my brother's."""
        nouns = self.lexicon.nouns
        determiners: dict[str, Weights] = {"person": {words.THE: 1}, "relation": {words.THE: 1, "possessive": 1}}
        return Union(
            *(
                (
                    len(nouns.get(kind, ())),
                    Record(
                        NounPhrase,
                        determiner=self._determiners(weights),
                        plural=False,
                        noun=Choice(nouns.get(kind, ())),
                    ),
                )
                for kind, weights in determiners.items()
            )
        )

    def adjectives(self, kind: str) -> Choice:
        """Adjectives that go with a kind of noun."""
        return Choice([adjective for adjective in self.lexicon.adjectives if kind in adjective.kinds])

    def phrases(self, prepositions: tuple, kinds: tuple[str, ...], role: str = OBLIQUE) -> Space:
        """Prepositions with noun phrases of some kinds."""
        return Record(Phrase, preposition=Choice(prepositions), object=self.of(kinds, role, possessor=False))

    def pronouns(self, *allowed: Pronoun) -> Choice:
        """Those of the allowed pronouns that the lexicon has."""
        return Choice([pronoun for pronoun in self.lexicon.pronouns if pronoun in allowed])

    def determiner(self, determiner: Determiner) -> Choice:
        """A determiner, if the lexicon has it."""
        return Choice([each for each in self.lexicon.determiners if each is determiner])

    def _determiners(self, weights: Weights) -> Space:
        lexicon = self.lexicon
        words_of: dict[Determiner | str, tuple[Determiner, ...]] = {
            **{determiner: (determiner,) for determiner in lexicon.determiners},
            "possessive": lexicon.possessives,
            "number": lexicon.numbers,
        }
        return Union(*((weight, Choice(words_of.get(name, ()))) for name, weight in weights.items()))
