"""Dependencies between words in sentences of the grammar, which a head of attention may resolve.

They come from the grammar's derivation, not from a tagger. A word is searched in the text of its sentence, and a
sentence counts only if the word occurs in it once.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from minitransformer.grammar import Example
from minitransformer.grammar.german import HABEN, RELATIVE_PRONOUNS, SEIN, noun_phrase
from minitransformer.grammar.syntax import ACCUSATIVE, DATIVE, NOMINATIVE, THIRD, Clause, Modal, NounPhrase

Span = tuple[int, int]
"""The places of the first character and of the one after the last."""

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")

FAR = 3
"""The fewest words between two words for a dependency over a distance."""


@dataclass(frozen=True)
class Dependency:
    """A kind of dependency between two words, and the attention that would show it.

    find  gives the places of the dependent and the governor in the texts of queries and keys, or None without them
    """

    name: str
    kind: Kind
    find: Callable[[Example], tuple[Span, Span] | None]


def place(text: str, words: str) -> Span | None:
    """The place of these words in the text; None if they do not occur, or more than once."""
    found = [match.span() for match in re.finditer(rf"\b{re.escape(words)}\b", text, re.IGNORECASE)]
    return found[0] if len(found) == 1 else None


def pieces(text: str, tokens: Sequence[str], span: Span) -> list[int] | None:
    """The numbers of the tokens, labelled as in `AttentionMaps`, that spell this part of the text.

    None if the tokens do not spell the text, because a character that the tokenizer does not know is written in bytes.
    """
    spelt = [token.removeprefix("·").removeprefix("▁") for token in tokens]
    if "".join(spelt) != text.replace(" ", ""):
        return None
    start, end = (len(text[:place].replace(" ", "")) for place in span)
    found, at = [], 0
    for number, token in enumerate(spelt):
        if at < end and at + len(token) > start:
            found.append(number)
        at += len(token)
    return found


def _bracket(example: Example) -> tuple[Span, Span] | None:
    """The end of a German main clause, and the finite verb far before it: "sieht … an", "hat … gesehen"."""
    verbs = _german_verbs(example.derivation.main)
    if verbs is None:
        return None
    return _apart(example.german, place(example.german, verbs[1]), place(example.german, verbs[0]))


def _verb_and_subject(example: Example) -> tuple[Span, Span] | None:
    """An English verb, and its subject's noun far before it, with a relative clause between them."""
    clause = example.derivation.main
    subject = clause.subject
    if not isinstance(subject, NounPhrase) or subject.relative is None:
        return None
    verb = place(example.english, _english_verb(clause, example.derivation.kind == "question"))
    noun = place(example.english, subject.noun.english[subject.plural])
    return _apart(example.english, verb, noun)


def _verb_and_its_english(example: Example) -> tuple[Span, Span] | None:
    """The German word at the end of a main clause, and the English verb that it belongs to."""
    clause = example.derivation.main
    verbs = _german_verbs(clause)
    if verbs is None:
        return None
    english = _english_verb(clause, example.derivation.kind == "question")
    return _both(place(example.german, verbs[1]), place(example.english, english))


def _article_and_noun(example: Example) -> tuple[Span, Span] | None:
    """A German article or possessive, and the English noun whose gender it shows; an adjective stands between."""
    for phrase, case in _noun_phrases(example.derivation.main):
        if phrase.adjective is None or phrase.possessor is not None:
            continue
        german = noun_phrase(phrase, case)
        whole, noun = place(example.german, german), place(example.english, phrase.noun.english[phrase.plural])
        if whole and noun and not phrase.plural and len(german.split()) == 3:
            return (whole[0], whole[0] + len(german.split()[0])), noun
    return None


def _pronoun_and_antecedent(example: Example) -> tuple[Span, Span] | None:
    """A German relative pronoun, and the noun that it agrees with."""
    for phrase, case in _noun_phrases(example.derivation.main):
        if phrase.relative is None:
            continue
        pronoun = RELATIVE_PRONOUNS[phrase.row][NOMINATIVE if phrase.relative.subject is None else ACCUSATIVE]
        found = re.findall(rf", {pronoun}\b", example.german)
        noun = place(example.german, phrase.noun.german[phrase.plural][case])
        if len(found) == 1 and noun:
            start = example.german.index(found[0]) + len(", ")
            return (start, start + len(pronoun)), noun
    return None


def _kein_and_not(example: Example) -> tuple[Span, Span] | None:
    """The German "kein", and the English "not" that it translates together with an article."""
    found = [match.span() for match in re.finditer(r"\bkein\w*", example.german, re.IGNORECASE)]
    return _both(found[0] if len(found) == 1 else None, place(example.english, "not"))


BRACKET = Dependency("what closes a German main clause → its finite verb", "decoder", _bracket)
SUBJECT = Dependency("English verb → its subject, beyond a relative clause", "encoder", _verb_and_subject)
VERB = Dependency("what closes a German main clause → the English verb", "cross", _verb_and_its_english)
ARTICLE = Dependency("German article → the English noun, beyond an adjective", "cross", _article_and_noun)
ANTECEDENT = Dependency("German relative pronoun → its antecedent", "decoder", _pronoun_and_antecedent)
NEGATION = Dependency("German “kein” → the English “not”", "cross", _kein_and_not)


def _both(dependent: Span | None, governor: Span | None) -> tuple[Span, Span] | None:
    return (dependent, governor) if dependent and governor else None


def _apart(text: str, dependent: Span | None, governor: Span | None) -> tuple[Span, Span] | None:
    """Both places, if the governor stands far before the dependent; else None."""
    if dependent and governor and len(text[governor[1] : dependent[0]].split()) >= FAR:
        return dependent, governor
    return None


def _german_verbs(clause: Clause) -> tuple[str, str] | None:
    """The finite verb of a main clause and the verb or prefix at its end; None if there is none at its end."""
    verb, form = clause.verb, clause.form
    person = clause.agrees_with(None).person
    if isinstance(form, Modal):
        return (form.german_negated if clause.negated else form.german)[person], verb.infinitive
    if form == "past":
        auxiliary = SEIN if verb.perfect_with_sein else HABEN
        return (auxiliary[person], verb.participle) if clause.predicate is None else None
    return (verb.german[person], verb.prefix) if verb.prefix else None


def _english_verb(clause: Clause, question: bool) -> str:
    """The verb as an English clause has it: bare behind an auxiliary."""
    base, third, past = clause.verb.english
    if question or clause.negated or isinstance(clause.form, Modal):
        return base
    if clause.form == "past":
        return past
    return third if clause.agrees_with(None).person == THIRD else base


def _noun_phrases(clause: Clause) -> Iterator[tuple[NounPhrase, int]]:
    """Subject and objects with their German cases."""
    for phrase, case in ((clause.subject, NOMINATIVE), (clause.recipient, DATIVE), (clause.object, clause.verb.case)):
        if isinstance(phrase, NounPhrase):
            yield phrase, case
