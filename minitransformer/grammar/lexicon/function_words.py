"""Determiners, pronouns, modals, prepositions, conjunctions and expressions of time."""

from ..numerals import english_number, english_ordinal, french_day, french_number, german_number, german_ordinal
from ..syntax import (
    ACCUSATIVE,
    DATIVE,
    FIRST,
    FIRST_PLURAL,
    THIRD,
    THIRD_PLURAL,
    Adverbial,
    Conjunction,
    Determiner,
    Modal,
    Preposition,
    Pronoun,
)
from .tables import rows


def _grid(text: str) -> tuple[tuple[str, ...], ...]:
    """Parse masculine / neuter / feminine / plural, each nominative, accusative, dative, genitive; "-" is no ending."""
    return tuple(tuple(row.replace("-", "").split(" ")) for row in text.split(" / "))


DEFINITE = _grid("der den dem des / das das dem des / die die der der / die die den der")
# Endings of words that decline like "dieser", like "mein", and not at all.
DER_WORD = _grid("er en em es / es es em es / e e er er / e e en er")
EIN_WORD = _grid("- en em es / - - em es / e e er er / e e en er")
FIXED = _grid("- - - - / - - - - / - - - - / - - - -")
# Endings of the adjective after them: "der alte Mann", "ein alter Mann", "zwei alte Männer", "kalten Wassers".
WEAK = _grid("e en en en / e e en en / e e en en / en en en en")
MIXED = _grid("er en en en / es es en en / e e en en / en en en en")
STRONG = _grid("er en em en / es es em en / e e er er / e e en er")
Grid = tuple[tuple[tuple[str, str], ...], ...]


def _declined(stem: str, endings: tuple[tuple[str, ...], ...], adjective: tuple[tuple[str, ...], ...]) -> Grid:
    """Return the German forms of a determiner: (word, ending of the adjective after it)."""
    return tuple(
        tuple((stem + ending, after) for ending, after in zip(*pair, strict=True))
        for pair in zip(endings, adjective, strict=True)
    )


def _possessive(english: str, german: str, french: tuple[str, str, str], *before_vowel: str) -> Determiner:
    return Determiner("possessive", english, _declined(german, EIN_WORD, MIXED), french, before_vowel)


THE = Determiner("the", "the", _declined("", DEFINITE, WEAK), ("le", "la", "les"))
A = Determiner("indefinite", "a", _declined("ein", EIN_WORD, MIXED), ("un", "une", "des"))
BARE = Determiner("indefinite", "", _declined("", FIXED, STRONG), ("", "", "des"))
MASS = Determiner("mass", "", _declined("", FIXED, STRONG), ("de le", "de la", ""))
THIS = Determiner("this", "this", _declined("dies", DER_WORD, WEAK), ("ce", "cette", "ces"), ("cet", "cette"))
THESE = THIS._replace(english="these")
NO = Determiner("no", "no", _declined("kein", EIN_WORD, MIXED), ("aucun", "aucune", "aucuns"))
EVERY = Determiner("every", "every", _declined("jed", DER_WORD, WEAK), ("chaque", "chaque", ""))
SOME = Determiner("some", "some", _declined("einig", DER_WORD, STRONG), ("", "", "quelques"))
MANY = Determiner("many", "many", _declined("viel", DER_WORD, STRONG), ("", "", "beaucoup de"))
DETERMINERS = (THE, A, BARE, MASS, THIS, THESE, NO, EVERY, SOME, MANY)
POSSESSIVES = (
    _possessive("my", "mein", ("mon", "ma", "mes"), "mon", "mon"),
    _possessive("his", "sein", ("son", "sa", "ses"), "son", "son"),
    _possessive("her", "ihr", ("son", "sa", "ses"), "son", "son"),
    _possessive("our", "unser", ("notre", "notre", "nos")),
    _possessive("their", "ihr", ("leur", "leur", "leurs")),
)
NUMBERS = tuple(
    Determiner(
        "number",
        english_number(n),
        _declined(german_number(n), FIXED, STRONG),
        (french_number(n), french_number(n, feminine=True), ""),
    )
    for n in range(2, 100)
)

I = Pronoun(FIRST, ("I", "me"), ("ich", "mich", "mir"), ("je", "me", "me"), False)
HE = Pronoun(THIRD, ("he", "him"), ("er", "ihn", "ihm"), ("il", "le", "lui"), False)
SHE = Pronoun(THIRD, ("she", "her"), ("sie", "sie", "ihr"), ("elle", "la", "lui"), True)
WE = Pronoun(FIRST_PLURAL, ("we", "us"), ("wir", "uns", "uns"), ("nous", "nous", "nous"), False)
THEY = Pronoun(THIRD_PLURAL, ("they", "them"), ("sie", "sie", "ihnen"), ("ils", "les", "leur"), False)
PRONOUNS = (I, HE, SHE, WE, THEY)


def _modal(english: str, negated: str, german: str, french: str, german_negated: str = "") -> Modal:
    """Make a modal verb: English is "he/they" if the two differ; German and French are ich, er, wir, sie."""
    third, _, other = english.partition("/")
    third_negated, _, other_negated = negated.partition("/")
    return Modal(
        (third, other or third),
        (third_negated, other_negated or third_negated),
        tuple(german.split()),
        tuple((german_negated or german).split()),
        tuple(french.split()),
    )


CAN = _modal("can", "cannot", "kann kann können können", "peux peut pouvons peuvent")
MUST = _modal("must", "must not", "muss muss müssen müssen", "dois doit devons doivent", "darf darf dürfen dürfen")
SHOULD = _modal("should", "should not", "sollte sollte sollten sollten", "devrais devrait devrions devraient")
WANT = _modal(
    "wants to/want to", "does not want to/do not want to", "will will wollen wollen", "veux veut voulons veulent"
)
WILL = _modal("will", "will not", "werde wird werden werden", "vais va allons vont")
MODALS = (CAN, MUST, SHOULD, WANT)

IN = Preposition("in", "in", DATIVE, "dans")
BEHIND = Preposition("behind", "hinter", DATIVE, "derrière")
IN_FRONT_OF = Preposition("in front of", "vor", DATIVE, "devant")
NEXT_TO = Preposition("next to", "neben", DATIVE, "à côté de")
PLACES = (IN, BEHIND, IN_FRONT_OF, NEXT_TO)
WITH = Preposition("with", "mit", DATIVE, "avec")
WITHOUT = Preposition("without", "ohne", ACCUSATIVE, "sans")
FOR = Preposition("for", "für", ACCUSATIVE, "pour")
COMPANY = (WITH, WITHOUT)

BECAUSE = Conjunction("because", "weil", "parce que")
IF = Conjunction("if", "wenn", "si")
WHILE = Conjunction("while", "während", "pendant que")
THAT = Conjunction("that", "dass", "que")
AND = Conjunction("and", "und", "et")
BUT = Conjunction("but", "aber", "mais")

MONTHS = """
January | Januar | janvier | 31
February | Februar | février | 29
March | März | mars | 31
April | April | avril | 30
May | Mai | mai | 31
June | Juni | juin | 30
July | Juli | juillet | 31
August | August | août | 31
September | September | septembre | 30
October | Oktober | octobre | 31
November | November | novembre | 30
December | Dezember | décembre | 31
"""
WEEKDAYS = """
Monday | Montag | lundi
Tuesday | Dienstag | mardi
Wednesday | Mittwoch | mercredi
Thursday | Donnerstag | jeudi
Friday | Freitag | vendredi
Saturday | Samstag | samedi
Sunday | Sonntag | dimanche
"""
# on the 21st of March, am einundzwanzigsten März, le vingt et un mars
DATES = tuple(
    Adverbial(
        f"on the {english_ordinal(day)} of {english}",
        f"am {german_ordinal(day)} {german}",
        f"le {french_day(day)} {french}",
        is_date=True,
    )
    for english, german, french, days in rows(MONTHS, 4)
    for day in range(1, int(days) + 1)
)
WEEKDAY_ADVERBIALS = tuple(
    Adverbial(f"on {english}", f"am {german}", french) for english, german, french in rows(WEEKDAYS, 3)
)
PAST_TIMES = (
    Adverbial("yesterday", "gestern", "hier"),
    Adverbial("last week", "letzte Woche", "la semaine dernière"),
    Adverbial("last year", "letztes Jahr", "l'année dernière"),
    Adverbial("this morning", "heute Morgen", "ce matin"),
    *WEEKDAY_ADVERBIALS,
)
PRESENT_TIMES = (
    Adverbial("today", "heute", "aujourd'hui"),
    Adverbial("now", "jetzt", "maintenant"),
    Adverbial("every day", "jeden Tag", "tous les jours", positive=True),
    Adverbial("every morning", "jeden Morgen", "chaque matin", positive=True),
    Adverbial("in the evening", "am Abend", "le soir"),
    Adverbial("in summer", "im Sommer", "en été"),
    Adverbial("in winter", "im Winter", "en hiver"),
)
FUTURE_TIMES = (
    Adverbial("tomorrow", "morgen", "demain"),
    Adverbial("soon", "bald", "bientôt", positive=True),
    Adverbial("next week", "nächste Woche", "la semaine prochaine"),
    Adverbial("next year", "nächstes Jahr", "l'année prochaine"),
    Adverbial("tonight", "heute Abend", "ce soir"),
    *WEEKDAY_ADVERBIALS,
)
