"""Nouns with their declensions, by the semantic kind that decides which verbs and adjectives go with them."""

from ..words import FEMININE, MASCULINE, NEUTER, Noun
from .noun_tables import TABLES

# Names that stand for several kinds in the tables of verbs and adjectives.
GROUPS = {
    "people": ("person", "relation", "parent"),
    "animals": ("pet", "animal"),
    "things": ("thing", "goods"),
    "object": ("thing", "goods", "container", "device"),
    "clothing": ("garment", "accessory"),
    "building": ("place", "area", "room"),
}
MASS = ("meal", "drink")
GENDERS = {"der": MASCULINE, "das": NEUTER, "die": FEMININE}


def english_plural(word: str) -> str:
    """Regular English plural: dog, dogs; box, boxes; city, cities."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def french_plural(word: str) -> str:
    """Regular French plural: chien, chiens; cheval, chevaux; gâteau, gâteaux; souris, souris."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + ("x" if word.endswith(("au", "eu")) else "s")


def german_cases(singular: str, genitive: str, plural: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Declension of a German noun, [plural][case]; the dative plural takes -n where it can."""
    weak = genitive != singular and genitive.endswith("n")
    oblique = genitive if weak else singular
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return (singular, oblique, oblique, genitive), (plural, plural, dative_plural, plural)


def _noun(kind: str, line: str) -> Noun:
    english, german, french = (part.strip() for part in line.split("|"))
    english_forms = english.split()
    article, rest = german.split(" ", 1)
    forms = rest.split(", ")
    gender = GENDERS[article]
    genitive = forms[0] if gender == FEMININE else forms.pop(1)
    singular, plural = forms[0], forms[-1]
    french_article, french_rest = french.split(" ", 1)
    french_singular, _, french_irregular = french_rest.partition(", ")
    return Noun(
        kind,
        (english_forms[0], english_forms[1] if len(english_forms) > 1 else english_plural(english_forms[0])),
        gender,
        german_cases(singular, genitive, plural),
        french_article == "une",
        (french_singular, french_irregular or french_plural(french_singular)),
    )


def kinds_of(text: str) -> tuple[str, ...]:
    """Kinds of nouns named in a table, groups spelt out: "people text" is person, relation, parent, text."""
    return tuple(kind for name in text.split() for kind in GROUPS.get(name, (name,)))


NOUNS: dict[str, tuple[Noun, ...]] = {
    kind: tuple(_noun(kind, line) for line in table.strip().splitlines()) for kind, table in TABLES.items()
}
