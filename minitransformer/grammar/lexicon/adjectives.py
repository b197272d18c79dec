"""Adjectives: English | German[, declined stem] | French masculine, feminine[, masculine before a vowel] | kinds.

A "<" before the French forms puts the adjective before its noun. "!" excludes it from the predicate, where French
would take another word ("neuf" for "nouveau"). A kind is a semantic class of nouns; nouns.py has kinds and groups of
kinds.
"""

from ..syntax import Adjective
from .nouns import kinds_of
from .tables import rows

TABLE = """
old | alt | <vieux, vieille, vieil | people animals object clothing building text opening
young | jung | <jeune, jeune | people animals
new | neu | <nouveau, nouvelle, nouvel | ! object clothing building text opening
big | groß | <grand, grande | animals object building opening food
small | klein | <petit, petite | animals object building opening food
beautiful | schön | <beau, belle, bel | person animals object clothing building text
good | gut | <bon, bonne | relation parent text food meal drink
bad | schlecht | <mauvais, mauvaise | text meal drink
pretty | hübsch | <joli, jolie | object clothing building
long | lang | <long, longue | text
short | kurz | court, courte | text
red | rot | rouge, rouge | object clothing opening
green | grün | vert, verte | object clothing opening
blue | blau | bleu, bleue | object clothing opening
yellow | gelb | jaune, jaune | object clothing
black | schwarz | noir, noire | animals object clothing
white | weiß | blanc, blanche | animals object clothing opening
gray | grau | gris, grise | animals object clothing
expensive | teuer, teur | cher, chère | object clothing
heavy | schwer | lourd, lourde | goods container
broken | kaputt | cassé, cassée | goods device opening
modern | modern | moderne, moderne | goods device building
clean | sauber | propre, propre | clothing building
dirty | schmutzig | sale, sale | object clothing building opening
elegant | elegant | élégant, élégante | clothing
warm | warm | chaud, chaude | clothing meal
dark | dunkel, dunkl | sombre, sombre | building
quiet | ruhig | calme, calme | people animals building
empty | leer | vide, vide | building container
tired | müde, müd | fatigué, fatiguée | people animals
happy | glücklich | heureux, heureuse | people
sad | traurig | triste, triste | people text
rich | reich | riche, riche | people
poor | arm | pauvre, pauvre | people
strong | stark | fort, forte | people animals
weak | schwach | faible, faible | people animals
sick | krank | malade, malade | people animals
hungry | hungrig | affamé, affamée | people animals
friendly | freundlich | aimable, aimable | people
famous | berühmt | célèbre, célèbre | people building text
clever | klug | intelligent, intelligente | people animals
lazy | faul | paresseux, paresseuse | people animals
curious | neugierig | curieux, curieuse | people animals
shy | schüchtern | timide, timide | people
brave | mutig | courageux, courageuse | people
nervous | nervös | nerveux, nerveuse | people
dangerous | gefährlich | dangereux, dangereuse | animal
wild | wild | sauvage, sauvage | animal
fresh | frisch | frais, fraîche | food meal
sweet | süß | sucré, sucrée | food
delicious | köstlich | délicieux, délicieuse | food meal drink
cold | kalt | froid, froide | meal drink
interesting | interessant | intéressant, intéressante | text
funny | lustig | drôle, drôle | text people
strange | seltsam | étrange, étrange | text people
important | wichtig | important, importante | text
"""

ENDINGS = ("e", "en", "er", "es", "em")


def french_plural_adjective(word: str) -> str:
    """Return the plural of a French adjective: vert, verts; beau, beaux; gris, gris."""
    if word.endswith(("s", "x")):
        return word
    return word + ("x" if word.endswith("eau") else "s")


def _adjective(english: str, german: str, french: str, kinds: str) -> Adjective:
    base, _, stem = german.partition(", ")
    masculine, feminine, *vowel = french.lstrip("<").split(", ")
    return Adjective(
        frozenset(kinds_of(kinds.lstrip("! "))),
        english,
        {"": base} | {ending: (stem or base) + ending for ending in ENDINGS},
        {
            (False, False): masculine,
            (True, False): feminine,
            (False, True): french_plural_adjective(masculine),
            (True, True): french_plural_adjective(feminine),
        },
        vowel[0] if vowel else masculine,
        french.startswith("<"),
        not kinds.startswith("!"),
    )


ADJECTIVES: tuple[Adjective, ...] = tuple(_adjective(*columns) for columns in rows(TABLE, 4))
