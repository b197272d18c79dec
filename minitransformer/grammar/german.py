"""German: word order, case and agreement of a derivation.

Main clauses put the finite verb second and end with the infinitive, participle or separable prefix; subordinate
clauses put the finite verb last. Between these two positions lies the midfield, in a fixed order:
pronouns, time, dative, accusative, "nicht", predicate or prepositional phrase.
"""

from __future__ import annotations

from .lexicon.function_words import NO, THE
from .syntax import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, Clause, Modal, NounPhrase, Phrase, Pronoun, Sentence

RELATIVE_PRONOUNS = (("der", "den"), ("das", "das"), ("die", "die"), ("die", "die"))
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur", "von dem": "vom", "an das": "ans"}
HABEN, SEIN = ("habe", "hat", "haben", "haben"), ("bin", "ist", "sind", "sind")
WAR = ("war", "war", "waren", "waren")


def sentence_text(sentence: Sentence) -> str:
    """Return the German sentence of a derivation."""
    kind, main, link, other = sentence
    if kind == "question":
        words = _main_clause(main, verb_first=True)
    elif other is None or link is None:
        words = _main_clause(main)
    elif kind == "fronted adverbial":
        words = [link.german, *_subordinate(other), ",", *_main_clause(main, verb_first=True)]
    elif kind == "coordination":
        comma = [","] if link.german == "aber" else []
        words = [*_main_clause(main), *comma, link.german, *_main_clause(other)]
    else:
        words = [*_main_clause(main), ",", link.german, *_subordinate(other)]
    # The comma that closes a relative clause may stand before another comma, or at the end.
    text = " ".join(words).replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + ("?" if kind == "question" else ".")


def noun_phrase(phrase: NounPhrase | Pronoun, case: int) -> str:
    """Return the text of a noun phrase in a case, without its relative clause."""
    if isinstance(phrase, Pronoun):
        return phrase.german[case]
    determiner, plural, noun, adjective, possessor, _ = phrase
    article, ending = (determiner if possessor is None else THE).german[phrase.row][case]
    words = [article, adjective.german[ending] if adjective else "", noun.german[plural][case]]
    words.append(noun_phrase(possessor, GENITIVE) if possessor else "")
    return " ".join(filter(None, words))


def prepositional(phrase: Phrase) -> str:
    """Return the text of a preposition with its noun phrase: "in dem" contracts to "im"."""
    preposition, object = phrase
    text = f"{preposition.german} {noun_phrase(object, preposition.case)}"
    if object.possessor is None and object.determiner is not THE:
        return text
    head, article, *rest = text.split(" ", 2)
    return " ".join([CONTRACTIONS.get(f"{head} {article}", f"{head} {article}"), *rest])


def _main_clause(clause: Clause, verb_first: bool = False) -> list[str]:
    """Return a clause with its verb second, or first in questions and after a subordinate clause."""
    subject, finite, middle, closing, after = _parts(clause)
    rest = [*middle, *closing, *after]
    if clause.fronted and clause.time is not None:
        return [clause.time.german, finite, *subject, *rest]
    return [finite, *subject, *rest] if verb_first else [*subject, finite, *rest]


def _subordinate(clause: Clause, antecedent: NounPhrase | None = None) -> list[str]:
    """Return a clause with its verb last, without a subject if a relative pronoun is the subject."""
    subject, finite, middle, closing, after = _parts(clause, antecedent)
    if clause.form == "present" and closing:
        finite, closing = closing[0] + finite, []  # the prefix rejoins its verb
    return [*subject, *middle, *closing, finite, *after]


def _parts(
    clause: Clause, antecedent: NounPhrase | None = None
) -> tuple[list[str], str, list[str], list[str], list[str]]:
    """Return subject, finite verb, midfield, the end of the clause, and the object's relative clause after it."""
    subject = clause.subject
    words: list[str] = []
    if subject is not None:
        words = [noun_phrase(subject, NOMINATIVE), *_relative(subject)]
    finite, closing = _verbs(clause, clause.agrees_with(antecedent).person)
    return words, finite, _midfield(clause), closing, _relative(clause.object)


def _relative(phrase: NounPhrase | Pronoun | None) -> list[str]:
    if not isinstance(phrase, NounPhrase) or phrase.relative is None:
        return []
    case = NOMINATIVE if phrase.relative.subject is None else ACCUSATIVE
    pronoun = RELATIVE_PRONOUNS[phrase.row][case]
    return [",", pronoun, *_subordinate(phrase.relative, phrase), ","]


def _verbs(clause: Clause, person: int) -> tuple[str, list[str]]:
    """Return the finite verb, and the infinitive, participle or prefix at the end of the clause."""
    verb, form = clause.verb, clause.form
    if isinstance(form, Modal):
        return (form.german_negated if clause.negated else form.german)[person], [verb.infinitive]
    if form == "present":
        return verb.german[person], [verb.prefix] if verb.prefix else []
    if clause.predicate is not None:
        return WAR[person], []
    return (SEIN if verb.perfect_with_sein else HABEN)[person], [verb.participle]


def _midfield(clause: Clause) -> list[str]:
    object, negated = clause.object, clause.negated
    if negated and isinstance(object, NounPhrase) and object.indefinite:
        object, negated = object._replace(determiner=NO), False
    pronouns: list[str] = []
    objects: list[str] = []
    for phrase, case in ((clause.recipient, DATIVE), (object, clause.verb.case)):
        if phrase is not None:
            (pronouns if isinstance(phrase, Pronoun) else objects).append(noun_phrase(phrase, case))
    time = [clause.time.german] if clause.time is not None and not clause.fronted else []
    words = [*pronouns, *time, *objects, *(["nicht"] if negated else [])]
    if clause.predicate is not None:
        words.append(clause.predicate.german[""])
    if clause.phrase is not None:
        words.append(prepositional(clause.phrase))
    return words
