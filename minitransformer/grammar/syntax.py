"""Words, and derivations: English, German and French all write a sentence from the same derivation.

A word holds its forms in the three languages. A derivation has no word order, agreement or case: each language adds its
own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# Rows of German tables: gender in the singular, one row for every plural.
MASCULINE, NEUTER, FEMININE, PLURAL = range(4)
# Columns of German tables.
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
# Columns of conjugations: I, he/she, we, they ("you" is left out: German and French have several words for it).
FIRST, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(4)


class Noun(NamedTuple):
    """A noun; its `kind`, a semantic class, decides which verbs and adjectives go with it."""

    kind: str
    english: tuple[str, str]  # singular, plural
    gender: int  # German: MASCULINE, NEUTER or FEMININE
    german: tuple[tuple[str, ...], tuple[str, ...]]  # [plural][case]
    feminine: bool  # French
    french: tuple[str, str]  # singular, plural


class Adjective(NamedTuple):
    """An adjective with the kinds of nouns that it can describe."""

    kinds: frozenset[str]
    english: str
    german: dict[str, str]  # ending ("" for the predicate, "e", "en", ...) to word
    french: dict[tuple[bool, bool], str]  # (feminine, plural) to word
    before_vowel: str  # French masculine singular before a vowel: bel, nouvel, vieil
    before_noun: bool  # French position
    predicative: bool  # may follow "is"


class Verb(NamedTuple):
    """A verb with its government; tuples of four are conjugated by FIRST … THIRD_PLURAL."""

    english: tuple[str, str, str]  # base, third person singular, past
    german: tuple[str, ...]  # present without the separable prefix
    infinitive: str  # German, prefix included
    participle: str  # German
    perfect_with_sein: bool
    prefix: str  # German separable prefix or ""
    case: int  # German case of the object
    french: tuple[str, ...]  # present
    french_infinitive: str
    french_participle: str
    perfect_with_etre: bool
    reflexive: bool  # French
    french_preposition: str  # French preposition before the object: "à" or ""


class Modal(NamedTuple):
    """An auxiliary that takes an infinitive."""

    english: tuple[str, str]  # after a third person singular, elsewhere
    negated: tuple[str, str]
    german: tuple[str, ...]
    german_negated: tuple[str, ...]  # "must not" is "darf nicht"
    french: tuple[str, ...]


class Pronoun(NamedTuple):
    """A personal pronoun."""

    person: int
    english: tuple[str, str]  # subject, object
    german: tuple[str, str, str]  # by case
    french: tuple[str, str, str]  # subject, direct object, indirect object
    feminine: bool

    @property
    def plural(self) -> bool:
        """True for "we" and "they"."""
        return self.person > THIRD


class Determiner(NamedTuple):
    """An article, or a word in its place such as "my" or a number."""

    name: str
    english: str
    german: tuple[tuple[tuple[str, str], ...], ...]  # [gender or PLURAL][case]: (word, ending of the adjective)
    french: tuple[str, str, str]  # masculine, feminine, plural
    before_vowel: tuple[str, ...] = ()  # French (masculine, feminine) before a vowel: cet, mon


class Preposition(NamedTuple):
    """A preposition; in German it governs a case."""

    english: str
    german: str
    case: int
    french: str


class Adverbial(NamedTuple):
    """An expression of time."""

    english: str
    german: str
    french: str
    is_date: bool = False
    positive: bool = False  # never in negated clauses, where "every day" would be ambiguous


class Conjunction(NamedTuple):
    """A word that links two clauses."""

    english: str
    german: str
    french: str


class NounPhrase(NamedTuple):
    """Determiner, adjective and noun, with at most one possessor ("the teacher's dog") or relative clause."""

    determiner: Determiner
    plural: bool
    noun: Noun
    adjective: Adjective | None = None
    possessor: NounPhrase | None = None
    relative: Clause | None = None  # its subject or its object is missing

    @property
    def person(self) -> int:
        """The column of a conjugation that agrees with this phrase."""
        return THIRD_PLURAL if self.plural else THIRD

    @property
    def row(self) -> int:
        """The row of German tables: the gender, or PLURAL."""
        return PLURAL if self.plural else self.noun.gender

    @property
    def feminine(self) -> bool:
        """True if the noun is feminine in French."""
        return self.noun.feminine

    @property
    def indefinite(self) -> bool:
        """True if German negates it with "kein", and French with "de"."""
        return self.determiner.name in ("indefinite", "mass")


class Phrase(NamedTuple):
    """A preposition with its noun phrase."""

    preposition: Preposition
    object: NounPhrase


Tense = Literal["present", "past"]  # German and French use the perfect for "past", except for "to be"


class Clause(NamedTuple):
    """One verb with its subject and complements."""

    subject: NounPhrase | Pronoun | None  # None where a relative pronoun is the subject
    verb: Verb
    form: Tense | Modal
    negated: bool = False
    object: NounPhrase | Pronoun | None = None
    recipient: NounPhrase | Pronoun | None = None
    phrase: Phrase | None = None  # governed by the verb, or a phrase of place, company or beneficiary
    predicate: Adjective | None = None
    time: Adverbial | None = None
    fronted: bool = False  # the time comes first

    def agrees_with(self, antecedent: NounPhrase | None) -> NounPhrase | Pronoun:
        """Return the subject, or the antecedent if a relative pronoun is the subject."""
        subject = self.subject or antecedent
        assert subject is not None  # only a relative clause has no subject
        return subject


class Sentence(NamedTuple):
    """One clause, or two joined by `link`."""

    kind: Literal["statement", "question", "adverbial", "fronted adverbial", "complement", "coordination"]
    main: Clause
    link: Conjunction | None = None
    other: Clause | None = None
