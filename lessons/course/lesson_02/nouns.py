"""The grammar's nouns by kind, as its author sorted them."""

from minitransformer.grammar.lexicon.nouns import NOUNS

KINDS = {
    "people": ("person", "relation", "parent"),
    "animals": ("pet", "animal"),
    "food": ("food", "meal", "drink"),
    "places": ("place", "area", "room"),
    "clothing": ("garment", "accessory"),
    "texts": ("text",),
    "objects": ("thing", "goods", "container", "device", "opening"),
}


def kinds_of_nouns() -> dict[str, str]:
    """The kind of each English noun, in the singular."""
    return {noun.english[0]: kind for kind, parts in KINDS.items() for part in parts for noun in NOUNS[part]}
