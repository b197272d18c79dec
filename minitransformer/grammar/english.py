"""English: the parse tree of a derivation, whose leaves are the sentence."""

from __future__ import annotations

from .lexicon.function_words import WANT
from .lexicon.nouns import GROUPS
from .lexicon.verbs import TO_BE
from .syntax import THIRD, Clause, Modal, NounPhrase, Pronoun, Sentence

Tree = tuple  # (label, child, ...), where a child is a Tree or a word
BE = {"present": ("am", "is", "are", "are"), "past": ("was", "was", "were", "were")}
COMMA = ("Punct", ",")


def sentence_tree(sentence: Sentence) -> Tree:
    """Return the parse tree of a sentence, with its punctuation."""
    kind, main, link, other = sentence
    if kind == "question":
        return ("S", *_question(main), ("Punct", "?"))
    children = _clause(main)
    if other is not None and link is not None:
        second = ("S", *_clause(other))
        linked = ("SBAR", ("C", link.english), second)
        if kind == "fronted adverbial":
            children = [linked, COMMA, *children]
        elif kind == "coordination":
            children = [("S", *children), COMMA, ("Conj", link.english), second]
        else:
            children[-1] = (*children[-1], linked)  # in the verb phrase
    return ("S", *children, ("Punct", "."))


def sentence_text(tree: Tree) -> str:
    """Return the leaves of a tree as a sentence: with a capital first letter, and no space before punctuation."""
    text = " ".join(_leaves(tree)).replace(" ,", ",")
    return text[0].upper() + text[1:-2] + text[-1]


def bracketed(tree: Tree | str) -> str:
    """Return a tree in brackets: (NP (D the) (N dog))."""
    return tree if isinstance(tree, str) else f"({tree[0]} {' '.join(map(bracketed, tree[1:]))})"


def _leaves(tree: Tree | str) -> list[str]:
    return [tree] if isinstance(tree, str) else [word for child in tree[1:] for word in _leaves(child)]


def _noun_phrase(phrase: NounPhrase | Pronoun, case: int = 1) -> Tree:
    if isinstance(phrase, Pronoun):
        return ("NP", ("Pro", phrase.english[case]))
    determiner, plural, noun, adjective, possessor, relative = phrase
    children: list[Tree] = [("N", noun.english[plural])]
    if adjective is not None:
        children.insert(0, ("A", adjective.english))
    if possessor is not None:
        _, *owner, (label, owner_noun) = _noun_phrase(possessor)
        children.insert(0, ("NP", *owner, (label, owner_noun + "'s")))
    elif determiner.english == "a":
        children.insert(0, ("D", "an" if children[0][1][0] in "aeiou" else "a"))
    elif determiner.english:
        children.insert(0, ("Num" if determiner.name == "number" else "D", determiner.english))
    if relative is not None:
        who = relative.subject is None and noun.kind in GROUPS["people"]
        children.append(("SBAR", ("Rel", "who" if who else "that"), ("S", *_clause(relative, phrase))))
    return ("NP", *children)


def _clause(clause: Clause, antecedent: NounPhrase | None = None) -> list[Tree]:
    """Return subject and verb phrase, or only the verb phrase if a relative pronoun is the subject."""
    person = clause.agrees_with(antecedent).person
    children: list[Tree] = [("VP", *_verb_words(clause, person), *_complements(clause))]
    if clause.subject is not None:
        children.insert(0, _noun_phrase(clause.subject, 0))
    if clause.fronted and clause.time is not None:
        return [("Adv", clause.time.english), COMMA, *children]
    return children


def _question(clause: Clause) -> list[Tree]:
    """Return auxiliary, subject and the rest; the auxiliary is "do" if there is no other."""
    subject = clause.agrees_with(None)
    first, *rest = _verb_words(clause, subject.person)
    if clause.form is WANT:
        first, rest = _support(clause, subject.person), [("M", WANT.english[1]), *rest]
    elif not isinstance(clause.form, Modal) and clause.verb is not TO_BE:
        first, rest = _support(clause, subject.person), [("V", clause.verb.english[0])]
    return [first, _noun_phrase(subject, 0), ("VP", *rest, *_complements(clause))]


def _support(clause: Clause, person: int) -> Tree:
    return ("Aux", "did" if clause.form == "past" else "does" if person == THIRD else "do")


def _verb_words(clause: Clause, person: int) -> list[Tree]:
    verb, form, negated = clause.verb, clause.form, clause.negated
    base, third, past = verb.english
    if isinstance(form, Modal):
        return [("M", (form.negated if negated else form.english)[person != THIRD]), ("V", base)]
    if verb is TO_BE:
        return [("V", BE[form][person]), *([("Neg", "not")] if negated else [])]
    if negated:
        return [_support(clause, person), ("Neg", "not"), ("V", base)]
    return [("V", past if form == "past" else third if person == THIRD else base)]


def _complements(clause: Clause) -> list[Tree]:
    children: list[Tree] = [_noun_phrase(each) for each in (clause.recipient, clause.object) if each is not None]
    if clause.predicate is not None:
        children.append(("A", clause.predicate.english))
    if clause.phrase is not None:
        preposition, object = clause.phrase
        children.append(("PP", ("P", preposition.english), _noun_phrase(object)))
    if clause.time is not None and not clause.fronted:
        children.append(("Adv", clause.time.english))
    return children
