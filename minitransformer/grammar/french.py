"""French: word order, agreement, elision and contraction of a derivation."""

from __future__ import annotations

import re

from .lexicon.function_words import BARE, THE
from .lexicon.verbs import TO_BE
from .syntax import Clause, Modal, NounPhrase, Pronoun, Sentence

VOWEL = "[aeiouhâàéèêîôûœ]"
ASPIRATED = "(?:hérisson|huit|onze)"
# je, ne, me, se, le, la, de, que before a vowel or a mute h; huit, onze and hérisson count as consonants
ELISION = re.compile(rf"(?<!\S)(?:(j|n|m|s|d|qu)e|(l)[ea]) (?={VOWEL})(?!{ASPIRATED})")
CONTRACTIONS = {"de le": "du", "de les": "des", "à le": "au", "à les": "aux"}
CONTRACTION = re.compile(rf"(?<!\S)({'|'.join(CONTRACTIONS)}) ")
VOWEL_START = re.compile(rf"(?!{ASPIRATED}){VOWEL}")
REFLEXIVE = ("me", "se", "nous", "se")
AVOIR, ETRE = ("ai", "a", "avons", "ont"), TO_BE.french
ETAIT = ("étais", "était", "étions", "étaient")


def sentence_text(sentence: Sentence) -> str:
    """Return the French sentence of a derivation."""
    kind, main, link, other = sentence
    words, end = _clause(main), "."
    if kind == "question":
        words, end = ["est-ce que", *words], " ?"
    elif other is not None and link is not None:
        linked = [link.french, *_clause(other)]
        comma = [","] if kind == "fronted adverbial" or link.french == "mais" else []
        words = [*linked, *comma, *words] if kind == "fronted adverbial" else [*words, *comma, *linked]
    text = " ".join(words).replace(" ,", ",")
    text = re.sub(r"(?<!\S)si (ils?\b)", r"s'\1", text)
    text = ELISION.sub(lambda match: (match[1] or match[2]) + "'", text)
    text = CONTRACTION.sub(lambda match: CONTRACTIONS[match[1]] + " ", text)
    return text[0].upper() + text[1:] + end


def starts_with_vowel(word: str) -> bool:
    """Return True if the word before this one is elided: this one begins with a vowel or a mute h."""
    return VOWEL_START.match(word) is not None


def noun_phrase(phrase: NounPhrase) -> list[str]:
    """Return determiner, adjective and noun in French order, then possessor or relative clause."""
    determiner, plural, noun, adjective, possessor, relative = phrase
    words = [noun.french[plural]]
    before_noun = adjective is not None and adjective.before_noun
    if adjective is not None:
        form = adjective.french[noun.feminine, plural]
        if before_noun and not (noun.feminine or plural) and starts_with_vowel(words[0]):
            form = adjective.before_vowel
        words.insert(0 if before_noun else 1, form)
    if possessor is not None:
        words += ["de", *noun_phrase(possessor)]
        determiner = THE
    article = determiner.french[noun.feminine]
    if plural and determiner.name != "number":
        # des chiens, but de vieux chiens
        article = "de" if determiner is BARE and before_noun else determiner.french[2]
    elif determiner.before_vowel and starts_with_vowel(words[0]):
        article = determiner.before_vowel[noun.feminine]
    if relative is not None and relative.subject is None:
        words += ["qui", *_predicate(relative, phrase)]
    elif relative is not None:
        words += ["que", *_clause(relative, phrase)]
    return [article, *words]


def _clause(clause: Clause, antecedent: NounPhrase | None = None) -> list[str]:
    """Return subject and predicate; `antecedent` is the noun phrase of a relative pronoun "que"."""
    subject = clause.agrees_with(None)
    words = [subject.french[0]] if isinstance(subject, Pronoun) else noun_phrase(subject)
    words += _predicate(clause, subject, antecedent)
    if clause.fronted and clause.time is not None:
        return [clause.time.french, ",", *words]
    return words


def _predicate(clause: Clause, subject: NounPhrase | Pronoun, antecedent: NounPhrase | None = None) -> list[str]:
    verb, person, object, recipient = clause.verb, subject.person, clause.object, clause.recipient
    clitics = [REFLEXIVE[person]] if verb.reflexive else []
    if isinstance(object, Pronoun):
        clitics.append(object.french[2 if verb.french_preposition else 1])
    if isinstance(recipient, Pronoun):
        clitics.append(recipient.french[2])
    no_subject = isinstance(subject, NounPhrase) and subject.determiner.name == "no"
    ne, pas = ["ne"] if clause.negated or no_subject else [], ["pas"] if clause.negated else []
    if isinstance(clause.form, Modal):
        words = [*ne, clause.form.french[person], *pas, *clitics, verb.french_infinitive]
    elif clause.form == "past" and clause.predicate is None:
        auxiliary = ETRE if verb.perfect_with_etre else AVOIR
        words = [*ne, *clitics, auxiliary[person], *pas, _participle(clause, subject, antecedent)]
    else:
        forms = ETAIT if clause.form == "past" else verb.french
        words = [*ne, *clitics, forms[person], *pas]
    if isinstance(object, NounPhrase) and clause.negated and object.indefinite:
        words += ["de", *noun_phrase(object)[1:]]
    elif isinstance(object, NounPhrase):
        words += [verb.french_preposition, *noun_phrase(object)]
    if isinstance(recipient, NounPhrase):
        words += ["à", *noun_phrase(recipient)]
    if clause.predicate is not None:
        words.append(clause.predicate.french[subject.feminine, subject.plural])
    if clause.phrase is not None:
        words += [clause.phrase.preposition.french, *noun_phrase(clause.phrase.object)]
    if clause.time is not None and not clause.fronted:
        words.append(clause.time.french)
    return [word for word in words if word]


def _participle(clause: Clause, subject: NounPhrase | Pronoun, antecedent: NounPhrase | None) -> str:
    """Return the participle; after être it agrees with the subject, after avoir with a direct object before it."""
    verb = clause.verb
    agrees_with = antecedent
    if verb.perfect_with_etre:
        agrees_with = subject
    elif isinstance(clause.object, Pronoun) and not verb.french_preposition:
        agrees_with = clause.object
    if agrees_with is None:
        return verb.french_participle
    word = verb.french_participle + ("e" if agrees_with.feminine else "")
    return word + ("s" if agrees_with.plural and not word.endswith("s") else "")
