"""The noun phrases of the grammar: determiners, adjectives and possessors for each role of a phrase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from .lexicon import Lexicon
from .lexicon import function_words as words
from .lexicon.nouns import GROUPS, MASS
from .spaces import Choice, Record, Space, Union
from .syntax import Determiner, NounPhrase, Phrase

Role = Literal["subject", "plain subject", "object", "negated object", "oblique"]
Weights = dict[Determiner | str, int]  # a str names a group of determiners
# Weights of the determiners by role. A plain subject and a negated object have no quantifier, since "not" and the
# quantifier would be ambiguous; plurals without an article are objects only, where French has "des".
SINGULAR: dict[Role, Weights] = {
    "subject": {words.THE: 6, "possessive": 3, words.THIS: 1, words.A: 1, words.EVERY: 1, words.NO: 1},
    "plain subject": {words.THE: 6, "possessive": 3, words.THIS: 1},
    "object": {words.THE: 4, words.A: 4, "possessive": 2, words.THIS: 1},
    "negated object": {words.THE: 2, words.A: 3, "possessive": 2, words.THIS: 1},
    "oblique": {words.THE: 5, words.A: 2, "possessive": 2, words.THIS: 1},
}
PLURAL: dict[Role, Weights] = {
    "subject": {words.THE: 4, "possessive": 1, words.THESE: 1, "number": 3, words.SOME: 1, words.MANY: 1},
    "plain subject": {words.THE: 4, "possessive": 1, words.THESE: 1},
    "object": {words.THE: 2, "possessive": 1, words.BARE: 2, "number": 4, words.MANY: 1},
    "negated object": {words.THE: 1, "possessive": 1, words.BARE: 2},
    "oblique": {words.THE: 3, "possessive": 1},
}
# Nobody says "my queen", "our wolf" or "their station".
NEVER_OWNED = ("person", "animal", "place")
OWNED = ("relation", "parent", "pet", "text", *GROUPS["object"], *GROUPS["clothing"], "room")


class NounPhrases:
    """Spaces of noun phrases over a lexicon."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self._known: dict[tuple, Space] = {}
        the_or_my = self._determiners({words.THE: 1, "possessive": 1})
        self._owners = self.each_kind(  # singular persons: the hunter's, my brother's
            ("person", "relation"),
            lambda kind: Record(
                NounPhrase,
                determiner=the_or_my if kind == "relation" else self._determiners({words.THE: 1}),
                plural=False,
                noun=self.nouns(kind),
            ),
        )

    def nouns(self, kind: str) -> Choice:
        """Return the nouns of a kind, if the lexicon has any."""
        return Choice(self.lexicon.nouns.get(kind, ()))

    def each_kind(self, kinds: tuple[str, ...], space: Callable[[str], Space]) -> Space:
        """Return the spaces of several kinds together, with equal weight for each noun."""
        return Union(*((self.nouns(kind).size, space(kind)) for kind in kinds))

    def of(self, kinds: tuple[str, ...], role: Role, possessor: bool = True) -> Space:
        """Return noun phrases with these kinds of nouns in a role, without a relative clause."""
        key = (kinds, role, possessor)
        if key not in self._known:
            self._known[key] = self.each_kind(kinds, lambda kind: self._of_kind(kind, role, possessor))
        return self._known[key]

    def _of_kind(self, kind: str, role: Role, possessor: bool) -> Space:
        singular: Weights = dict(SINGULAR[role])
        plural: Weights = dict(PLURAL[role])
        if kind in MASS:
            singular = {words.THE: 2, "possessive": 1}
            if role in ("object", "negated object"):
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
        """Return noun phrases with and without an adjective."""
        fields = {"determiner": determiners, "plural": plural, "noun": self.nouns(kind)}
        return Union(
            (3, Record(NounPhrase, **fields)), (2, Record(NounPhrase, **fields, adjective=self.adjectives(kind)))
        )

    def _owned(self, kind: str) -> Space:
        """Return noun phrases with a possessor: the teacher's old dog."""
        fields = {"determiner": words.THE, "noun": self.nouns(kind), "possessor": self._owners}
        return Union(
            (2, Record(NounPhrase, plural=False, **fields)),
            (0 if kind == "parent" else 1, Record(NounPhrase, plural=True, **fields)),
            (1, Record(NounPhrase, plural=False, **fields, adjective=self.adjectives(kind))),
        )

    def adjectives(self, kind: str) -> Choice:
        """Return the adjectives that go with a kind of noun."""
        return Choice([adjective for adjective in self.lexicon.adjectives if kind in adjective.kinds])

    def phrases(self, prepositions: tuple, kinds: tuple[str, ...], role: Role = "oblique") -> Space:
        """Return prepositions with noun phrases of these kinds."""
        key = (prepositions, kinds, role)
        if key not in self._known:
            objects = self.of(kinds, role, possessor=False)
            self._known[key] = Record(Phrase, preposition=Choice(prepositions), object=objects)
        return self._known[key]

    def with_relative(self, kind: str, relative: Space) -> Space:
        """Return noun phrases with a relative clause: the man who sleeps, the book that she buys."""
        the, a = (self._determiners({article: 1}) for article in (words.THE, words.A))
        fields = {"noun": self.nouns(kind), "relative": relative}
        return Union(
            (5, Record(NounPhrase, determiner=the, plural=False, **fields)),
            (1, Record(NounPhrase, determiner=a, plural=False, **fields)),
            (2, Record(NounPhrase, determiner=the, plural=True, **fields)),
        )

    def _determiners(self, weights: Weights) -> Space:
        lexicon = self.lexicon
        words_of: dict[Determiner | str, tuple[Determiner, ...]] = {
            **{determiner: (determiner,) for determiner in lexicon.determiners},
            "possessive": lexicon.possessives,
            "number": lexicon.numbers,
        }
        return Union(*((weight, Choice(words_of.get(name, ()))) for name, weight in weights.items()))
