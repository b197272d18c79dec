"""English: the parse tree of a derivation, whose leaves are the sentence."""

from __future__ import annotations

from .lexicon.function_words import WANT
from .lexicon.nouns import GROUPS
from .lexicon.verbs import TO_BE
from .syntax import (
    ADVERBIAL,
    COMPLEMENT,
    COORDINATION,
    FRONTED_ADVERBIAL,
    PAST,
    PRESENT,
    QUESTION,
    Clause,
    NounPhrase,
    Phrase,
    Sentence,
)
from .words import THIRD, Modal, Pronoun

Tree = tuple  # (label, child, ...), where a child is a Tree or a word
BE_PRESENT, BE_PAST = ("am", "is", "are", "are"), ("was", "was", "were", "were")
COMMA = ("Punct", ",")


def sentence_tree(sentence: Sentence) -> Tree:
    """Parse tree of a sentence, its punctuation included."""
    kind, main, link, other = sentence
    if kind == QUESTION:
        return ("S", *_question(main), ("Punct", "?"))
    children = _clause(main)
    if other is not None and link is not None:
        second = ("S", *_clause(other))
        linked = ("SBAR", ("C", link.english), second)
        if kind in (ADVERBIAL, COMPLEMENT):
            *before, (_, *verb_phrase) = children
            children = [*before, ("VP", *verb_phrase, linked)]
        elif kind == FRONTED_ADVERBIAL:
            children = [linked, COMMA, *children]
        elif kind == COORDINATION:
            children = [("S", *children), COMMA, ("Conj", link.english), second]
    return ("S", *children, ("Punct", "."))


def sentence_text(tree: Tree) -> str:
    """The sentence that the leaves of a tree spell: first letter capital, no space before punctuation."""
    words: list[str] = []
    _leaves(tree, words)
    text = " ".join(words).replace(" ,", ",")
    return text[0].upper() + text[1:-2] + text[-1]


def bracketed(tree: Tree | str) -> str:
    """A tree in brackets: (NP (D the) (N dog))."""
    if isinstance(tree, str):
        return tree
    return f"({tree[0]} {' '.join(map(bracketed, tree[1:]))})"


def _leaves(tree: Tree, words: list[str]) -> None:
    for child in tree[1:]:
        if isinstance(child, str):
            words.append(child)
        else:
            _leaves(child, words)


def _noun_phrase(phrase: NounPhrase | Pronoun, case: int = 1) -> Tree:
    if isinstance(phrase, Pronoun):
        return ("NP", ("Pro", phrase.english[case]))
    determiner, plural, noun, adjective, possessor, relative = phrase
    word = noun.english[plural]
    children: list[Tree] = [("N", word)]
    if adjective is not None:
        children.insert(0, ("A", adjective.english))
        word = adjective.english
    if possessor is not None:
        _, *owner, (label, owner_noun) = _noun_phrase(possessor)
        children.insert(0, ("NP", *owner, (label, owner_noun + "'s")))
    elif determiner.english == "a":
        children.insert(0, ("D", "an" if word[0] in "aeiou" else "a"))
    elif determiner.english:
        children.insert(0, ("Num" if determiner.name == "number" else "D", determiner.english))
    if relative is not None:
        children.append(_relative(relative, phrase))
    return ("NP", *children)


def _relative(clause: Clause, antecedent: NounPhrase) -> Tree:
    if clause.subject is None:
        pronoun = "who" if antecedent.noun.kind in GROUPS["people"] else "that"
        return ("SBAR", ("Rel", pronoun), ("S", _verb_phrase(clause, antecedent.person)))
    return ("SBAR", ("Rel", "that"), ("S", *_clause(clause)))


def _clause(clause: Clause) -> list[Tree]:
    subject = clause.subject
    assert subject is not None  # only the clause of _relative has a gap there
    children = [_noun_phrase(subject, 0), _verb_phrase(clause, subject.person)]
    if clause.fronted and clause.time is not None:
        return [("Adv", clause.time.english), COMMA, *children]
    return children


def _question(clause: Clause) -> list[Tree]:
    """Auxiliary, subject, the rest: "do" helps where there is no other auxiliary."""
    subject = clause.subject
    assert subject is not None
    person = subject.person
    first, *rest = _verb_words(clause, person)
    if clause.form is WANT:
        rest = [("M", WANT.english[1]), *rest]
    elif clause.form in (PRESENT, PAST) and clause.verb is not TO_BE:
        rest = [("V", clause.verb.english[0])]
    else:
        return [first, _noun_phrase(subject, 0), ("VP", *rest, *_complements(clause))]
    return [_support(clause, person), _noun_phrase(subject, 0), ("VP", *rest, *_complements(clause))]


def _support(clause: Clause, person: int) -> Tree:
    return ("Aux", "did" if clause.form == PAST else "does" if person == THIRD else "do")


def _verb_phrase(clause: Clause, person: int) -> Tree:
    return ("VP", *_verb_words(clause, person), *_complements(clause))


def _verb_words(clause: Clause, person: int) -> list[Tree]:
    verb, form, negated = clause.verb, clause.form, clause.negated
    base = ("V", verb.english[0])
    if isinstance(form, Modal):
        words = form.negated if negated else form.english
        return [("M", words[person != THIRD]), base]
    if verb is TO_BE:
        be = ("V", (BE_PRESENT if form == PRESENT else BE_PAST)[person])
        return [be, ("Neg", "not")] if negated else [be]
    if negated:
        return [_support(clause, person), ("Neg", "not"), base]
    if form == PAST:
        return [("V", verb.english[2])]
    return [("V", verb.english[1])] if person == THIRD else [base]


def _complements(clause: Clause) -> list[Tree]:
    children: list[Tree] = []
    if clause.recipient is not None:
        children.append(_noun_phrase(clause.recipient))
    if clause.object is not None:
        children.append(_noun_phrase(clause.object))
    if clause.predicate is not None:
        children.append(("A", clause.predicate.english))
    if clause.phrase is not None:
        children.append(_prepositional(clause.phrase))
    if clause.time is not None and not clause.fronted:
        children.append(("Adv", clause.time.english))
    return children


def _prepositional(phrase: Phrase) -> Tree:
    return ("PP", ("P", phrase.preposition.english), _noun_phrase(phrase.object))
