"""The lexicon: 374 lemmas with their German and French forms, as tables that a reader can check."""

from typing import NamedTuple

from ..syntax import Adjective, Adverbial, Conjunction, Determiner, Modal, Noun, Preposition, Pronoun, Verb
from . import function_words as words
from . import verbs
from .adjectives import ADJECTIVES
from .nouns import NOUNS
from .verbs import Entry


class Lexicon(NamedTuple):
    """The words of a grammar; `lexicon._replace(nouns=…)` gives a smaller language."""

    nouns: dict[str, tuple[Noun, ...]] = NOUNS
    adjectives: tuple[Adjective, ...] = ADJECTIVES
    intransitive: tuple[Entry, ...] = verbs.INTRANSITIVE
    transitive: tuple[Entry, ...] = verbs.TRANSITIVE
    dative: tuple[Entry, ...] = verbs.DATIVE_VERBS
    ditransitive: tuple[Entry, ...] = verbs.DITRANSITIVE
    prepositional: tuple[Entry, ...] = verbs.PREPOSITIONAL
    motion: tuple[Entry, ...] = verbs.MOTION
    clause_verbs: tuple[Verb, ...] = verbs.CLAUSE_VERBS
    pronouns: tuple[Pronoun, ...] = words.PRONOUNS
    determiners: tuple[Determiner, ...] = words.DETERMINERS
    possessives: tuple[Determiner, ...] = words.POSSESSIVES
    numbers: tuple[Determiner, ...] = words.NUMBERS
    modals: tuple[Modal, ...] = words.MODALS
    places: tuple[Preposition, ...] = words.PLACES
    company: tuple[Preposition, ...] = words.COMPANY
    past_times: tuple[Adverbial, ...] = words.PAST_TIMES
    present_times: tuple[Adverbial, ...] = words.PRESENT_TIMES
    future_times: tuple[Adverbial, ...] = words.FUTURE_TIMES
    dates: tuple[Adverbial, ...] = words.DATES
    links: tuple[Conjunction, ...] = (words.BECAUSE, words.IF, words.WHILE)
    coordinators: tuple[Conjunction, ...] = (words.AND, words.BUT)

    def verbs(self) -> dict[str, list[Verb]]:
        """Return the verbs by their complements; a verb may be in several of the lists."""
        return {
            "alone": [entry.verb for entry in self.intransitive],
            "object": [entry.verb for entry in (*self.transitive, *self.dative)],
            "two objects": [entry.verb for entry in self.ditransitive],
            "phrase": [entry.verb for entry in (*self.prepositional, *self.motion)],
            "clause": list(self.clause_verbs),
        }

    def lemmas(self) -> set[tuple[str, str]]:
        """Return every word once, as (part of speech, English base form), without number words and dates."""
        return {
            *(("noun", noun.english[0]) for kind in self.nouns.values() for noun in kind),
            *(("adjective", adjective.english) for adjective in self.adjectives),
            *(("verb", verb.english[0]) for verbs in self.verbs().values() for verb in verbs),
            *(("pronoun", pronoun.english[0]) for pronoun in self.pronouns),
            *(("determiner", determiner.english) for determiner in self.possessives),
            *(("modal", modal.english[1]) for modal in self.modals),
            *(("preposition", preposition.english) for preposition in (*self.places, *self.company)),
            *(("adverbial", time.english) for time in (*self.past_times, *self.present_times, *self.future_times)),
            *(("conjunction", link.english) for link in (*self.links, *self.coordinators)),
        }
