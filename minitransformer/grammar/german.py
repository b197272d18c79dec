"""German: word order, case and agreement of a derivation.

Main clauses put the finite verb second and close with infinitive, participle or separable prefix; subordinate
clauses put the finite verb last. Between the two lies the midfield, in one fixed order:
pronouns, time, dative, accusative, "nicht", predicate or prepositional phrase.
"""

from __future__ import annotations

from .lexicon.function_words import NO, THE
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
from .words import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, PLURAL, Modal, Pronoun

RELATIVE_PRONOUNS = (("der", "den"), ("das", "das"), ("die", "die"), ("die", "die"))
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur", "von dem": "vom", "an das": "ans"}
HABEN, SEIN = ("habe", "hat", "haben", "haben"), ("bin", "ist", "sind", "sind")
WAR = ("war", "war", "waren", "waren")


def sentence_text(sentence: Sentence) -> str:
    """The German sentence of a derivation."""
    kind, main, link, other = sentence
    if kind == QUESTION:
        return _spell(_verb_first(main), "?")
    if other is None or link is None:
        return _spell(_main_clause(main), ".")
    if kind in (ADVERBIAL, COMPLEMENT):
        words = [*_main_clause(main), ",", link.german, *_subordinate(other)]
    elif kind == FRONTED_ADVERBIAL:
        words = [link.german, *_subordinate(other), ",", *_verb_first(main)]
    else:
        assert kind == COORDINATION
        comma = [","] if link.german == "aber" else []
        words = [*_main_clause(main), *comma, link.german, *_main_clause(other)]
    return _spell(words, ".")


def noun_phrase(phrase: NounPhrase | Pronoun, case: int) -> str:
    """A noun phrase in a case, without its relative clause."""
    if isinstance(phrase, Pronoun):
        return phrase.german[case]
    determiner, plural, noun, adjective, possessor, _ = phrase
    if possessor is not None:
        determiner = THE
    article, ending = determiner.german[PLURAL if plural else noun.gender][case]
    text = noun.german[plural][case]
    if adjective is not None:
        text = f"{adjective.german[ending]} {text}"
    if article:
        text = f"{article} {text}"
    return text if possessor is None else f"{text} {noun_phrase(possessor, GENITIVE)}"


def prepositional(phrase: Phrase) -> str:
    """A preposition with its noun phrase: "in dem" contracts to "im"."""
    preposition, object = phrase
    text = f"{preposition.german} {noun_phrase(object, preposition.case)}"
    if object.possessor is None and object.determiner is not THE:
        return text
    head, article, *rest = text.split(" ", 2)
    contracted = CONTRACTIONS.get(f"{head} {article}")
    return " ".join([contracted, *rest]) if contracted else text


def _spell(words: list[str], end: str) -> str:
    # the comma that closes a relative clause may meet another one, or the end
    text = " ".join(words).replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + end


def _main_clause(clause: Clause) -> list[str]:
    """Verb second: the subject first, or the fronted time and then the subject behind the verb."""
    if clause.fronted and clause.time is not None:
        return [clause.time.german, *_verb_first(clause)]
    subject = clause.subject
    assert subject is not None
    finite, closing = _verbs(clause, subject.person)
    middle, after = _middle(clause)
    return [*_subject(subject), finite, *middle, *closing, *after]


def _verb_first(clause: Clause) -> list[str]:
    """Finite verb, then the subject: in questions and after whatever stands first."""
    subject = clause.subject
    assert subject is not None
    finite, closing = _verbs(clause, subject.person)
    middle, after = _middle(clause)
    return [finite, *_subject(subject), *middle, *closing, *after]


def _subordinate(clause: Clause, person: int | None = None) -> list[str]:
    """Verb last; without a subject where the relative pronoun is the subject and gives the person."""
    subject = clause.subject
    words: list[str] = []
    if subject is not None:
        words, person = _subject(subject), subject.person
    assert person is not None
    finite, closing = _verbs(clause, person)
    if not isinstance(clause.form, Modal) and clause.form != PAST and closing:
        finite, closing = closing[0] + finite, []  # the prefix rejoins its verb
    middle, after = _middle(clause)
    return [*words, *middle, *closing, finite, *after]


def _subject(subject: NounPhrase | Pronoun) -> list[str]:
    words = [noun_phrase(subject, NOMINATIVE)]
    return words if isinstance(subject, Pronoun) else words + _relative(subject)


def _relative(phrase: NounPhrase) -> list[str]:
    clause = phrase.relative
    if clause is None:
        return []
    case = NOMINATIVE if clause.subject is None else ACCUSATIVE
    pronoun = RELATIVE_PRONOUNS[PLURAL if phrase.plural else phrase.noun.gender][case]
    return [",", pronoun, *_subordinate(clause, phrase.person), ","]


def _verbs(clause: Clause, person: int) -> tuple[str, list[str]]:
    """The finite verb, and what closes the clause."""
    verb, form = clause.verb, clause.form
    if isinstance(form, Modal):
        return (form.german_negated if clause.negated else form.german)[person], [verb.infinitive]
    if form == PAST:
        if clause.predicate is not None:
            return WAR[person], []
        return (SEIN if verb.perfect_with_sein else HABEN)[person], [verb.participle]
    return verb.german[person], [verb.prefix] if verb.prefix else []


def _middle(clause: Clause) -> tuple[list[str], list[str]]:
    """The midfield, and the relative clause of the object that follows the whole clause."""
    object, recipient, negated = clause.object, clause.recipient, clause.negated
    pronouns: list[str] = []
    objects: list[str] = []
    after: list[str] = []
    if recipient is not None:
        (pronouns if isinstance(recipient, Pronoun) else objects).append(noun_phrase(recipient, DATIVE))
    if isinstance(object, Pronoun):
        pronouns.append(noun_phrase(object, clause.verb.case))
    elif object is not None:
        if negated and object.determiner.name in ("indefinite", "mass"):
            object, negated = object._replace(determiner=NO), False
        objects.append(noun_phrase(object, clause.verb.case))
        after = _relative(object)
    words = pronouns
    if clause.time is not None and not clause.fronted:
        words.append(clause.time.german)
    words += objects
    if negated:
        words.append("nicht")
    if clause.predicate is not None:
        words.append(clause.predicate.german[""])
    if clause.phrase is not None:
        words.append(prepositional(clause.phrase))
    return words, after
