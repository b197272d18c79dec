"""French: word order, agreement, elision and contraction of a derivation."""

from __future__ import annotations

import re

from .lexicon.function_words import BARE, THE
from .lexicon.verbs import TO_BE
from .syntax import (
    ADVERBIAL,
    COMPLEMENT,
    COORDINATION,
    FRONTED_ADVERBIAL,
    PAST,
    QUESTION,
    Clause,
    NounPhrase,
    Phrase,
    Sentence,
)
from .words import Determiner, Modal, Noun, Pronoun

VOWEL = "[aeiouhâàéèêîôûœ]"
ASPIRATED = "(?:hérisson|huit|onze)"
# je, ne, me, se, le, la, de, que before a vowel or a mute h; huit, onze and hérisson count as consonants
ELISION = re.compile(rf"(?<!\S)(?:(j|n|m|s|d|qu)e|(l)[ea]) (?={VOWEL})(?!{ASPIRATED})")
CONTRACTION = re.compile(r"(?<!\S)(de|à) (les?) ")
CONTRACTED = {("de", "le"): "du ", ("de", "les"): "des ", ("à", "le"): "au ", ("à", "les"): "aux "}
VOWEL_START = re.compile(rf"(?!{ASPIRATED}){VOWEL}")
REFLEXIVE = ("me", "se", "nous", "se")
AVOIR, ETRE = ("ai", "a", "avons", "ont"), TO_BE.french
ETAIT = ("étais", "était", "étions", "étaient")


def sentence_text(sentence: Sentence) -> str:
    """The French sentence of a derivation."""
    kind, main, link, other = sentence
    if kind == QUESTION:
        return _spell(["est-ce que", *_clause(main)], " ?")
    if other is None or link is None:
        return _spell(_clause(main), ".")
    linked = [link.french, *_clause(other)]
    if kind == FRONTED_ADVERBIAL:
        words = [*linked, ",", *_clause(main)]
    elif kind in (ADVERBIAL, COMPLEMENT):
        words = [*_clause(main), *linked]
    else:
        assert kind == COORDINATION
        words = [*_clause(main), *([","] if link.french == "mais" else []), *linked]
    return _spell(words, ".")


def starts_with_vowel(word: str) -> bool:
    """Whether a word calls for elision: it begins with a vowel or a mute h."""
    return VOWEL_START.match(word) is not None


def noun_phrase(phrase: NounPhrase) -> list[str]:
    """Determiner, adjective and noun in the French order, then possessor or relative clause."""
    determiner, plural, noun, adjective, possessor, relative = phrase
    words = [noun.french[plural]]
    prenominal = adjective is not None and adjective.before_noun
    if adjective is not None:
        form = adjective.french[noun.feminine, plural]
        if prenominal:
            vowel = not (noun.feminine or plural) and starts_with_vowel(words[0])
            words.insert(0, adjective.before_vowel if vowel else form)
        else:
            words.append(form)
    if possessor is not None:
        determiner = THE
    article = _article(determiner, noun, plural, words[0])
    if prenominal and determiner is BARE:
        article = "de"  # des chiens, but de vieux chiens
    words.insert(0, article)
    if possessor is not None:
        words += ["de", *noun_phrase(possessor)]
    if relative is not None:
        words += _relative(relative, phrase)
    return words


def _article(determiner: Determiner, noun: Noun, plural: bool, following: str) -> str:
    masculine, feminine, plural_form = determiner.french
    if determiner.name == "number":
        return feminine if noun.feminine else masculine
    if plural:
        return plural_form
    if determiner.before_vowel and starts_with_vowel(following):
        return determiner.before_vowel[noun.feminine]
    return feminine if noun.feminine else masculine


def _relative(clause: Clause, antecedent: NounPhrase) -> list[str]:
    if clause.subject is None:
        return ["qui", *_predicate(clause, antecedent)]
    return ["que", *_clause(clause, antecedent)]


def _clause(clause: Clause, antecedent: NounPhrase | None = None) -> list[str]:
    """Subject and predicate; `antecedent` is what the relative pronoun "que" stands for."""
    subject = clause.subject
    assert subject is not None
    words = [subject.french[0]] if isinstance(subject, Pronoun) else noun_phrase(subject)
    words += _predicate(clause, subject, antecedent)
    if clause.fronted and clause.time is not None:
        return [clause.time.french, ",", *words]
    return words


def _gender_number(phrase: NounPhrase | Pronoun) -> tuple[bool, bool]:
    if isinstance(phrase, Pronoun):
        return phrase.feminine, phrase.person > 1
    return phrase.noun.feminine, phrase.plural


def _predicate(clause: Clause, subject: NounPhrase | Pronoun, antecedent: NounPhrase | None = None) -> list[str]:
    verb, person = clause.verb, subject.person
    clitics = [REFLEXIVE[person]] if verb.reflexive else []
    clitics += _clitics(clause)
    no_subject = isinstance(subject, NounPhrase) and subject.determiner.name == "no"
    ne, pas = ["ne"] if clause.negated or no_subject else [], ["pas"] if clause.negated else []
    if isinstance(clause.form, Modal):
        words = [*ne, clause.form.french[person], *pas, *clitics, verb.french_infinitive]
    elif clause.form == PAST and clause.predicate is None:
        auxiliary = ETRE if verb.perfect_with_etre else AVOIR
        words = [*ne, *clitics, auxiliary[person], *pas, _participle(clause, subject, antecedent)]
    else:
        forms = ETAIT if clause.form == PAST else verb.french
        words = [*ne, *clitics, forms[person], *pas]
    return words + _complements(clause, subject)


def _clitics(clause: Clause) -> list[str]:
    words = []
    if isinstance(clause.object, Pronoun):
        words.append(clause.object.french[2 if clause.verb.french_preposition else 1])
    if isinstance(clause.recipient, Pronoun):
        words.append(clause.recipient.french[2])
    return words


def _participle(clause: Clause, subject: NounPhrase | Pronoun, antecedent: NounPhrase | None) -> str:
    """The participle agrees with the subject after être, with a direct object that precedes it after avoir."""
    verb = clause.verb
    agrees_with = antecedent
    if verb.perfect_with_etre:
        agrees_with = subject
    elif isinstance(clause.object, Pronoun) and not verb.french_preposition:
        agrees_with = clause.object
    if agrees_with is None:
        return verb.french_participle
    feminine, plural = _gender_number(agrees_with)
    word = verb.french_participle + ("e" if feminine else "")
    return word + ("s" if plural and not word.endswith("s") else "")


def _complements(clause: Clause, subject: NounPhrase | Pronoun) -> list[str]:
    words: list[str] = []
    if isinstance(clause.object, NounPhrase):
        object = clause.object
        if clause.negated and object.determiner.name in ("indefinite", "mass"):
            words += ["de", *noun_phrase(object)[1:]]
        else:
            words += [clause.verb.french_preposition] if clause.verb.french_preposition else []
            words += noun_phrase(object)
    if isinstance(clause.recipient, NounPhrase):
        words += ["à", *noun_phrase(clause.recipient)]
    if clause.predicate is not None:
        words.append(clause.predicate.french[_gender_number(subject)])
    if clause.phrase is not None:
        words += _prepositional(clause.phrase)
    if clause.time is not None and not clause.fronted:
        words.append(clause.time.french)
    return words


def _prepositional(phrase: Phrase) -> list[str]:
    preposition = [phrase.preposition.french] if phrase.preposition.french else []
    return preposition + noun_phrase(phrase.object)


def _spell(words: list[str], end: str) -> str:
    text = " ".join(words).replace(" ,", ",")
    text = re.sub(r"(?<!\S)si (ils?\b)", r"s'\1", text)
    text = ELISION.sub(lambda match: (match[1] or match[2]) + "'", text)
    text = CONTRACTION.sub(lambda match: CONTRACTED[match[1], match[2]], text)
    return text[0].upper() + text[1:] + end
