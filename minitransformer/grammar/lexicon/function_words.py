"""Determiners, pronouns, modals, prepositions, conjunctions and expressions of time."""

from ..numerals import (
    english_number,
    english_ordinal,
    french_day,
    french_number,
    german_number,
    german_ordinal,
)
from ..words import (
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

# Endings of der-words and of strong adjectives: rows masculine, neuter, feminine, plural;
# columns nominative, accusative, dative, genitive.
STRONG = (("er", "en", "em", "es"), ("es", "es", "em", "es"), ("e", "e", "er", "er"), ("e", "e", "en", "er"))
# Endings of the adjective after a der-word.
WEAK = (("e", "en", "en", "en"), ("e", "e", "en", "en"), ("e", "e", "en", "en"), ("en", "en", "en", "en"))
DEFINITE = (
    ("der", "den", "dem", "des"),
    ("das", "das", "dem", "des"),
    ("die", "die", "der", "der"),
    ("die", "die", "den", "der"),
)
# Where an ein-word has no ending, the adjective takes the strong one ("ein alter Mann", "mein altes Haus").
BARE_CELLS = ((0, 0), (1, 0), (1, 1))
STRONG_GENITIVE = "en"  # of masculine and neuter adjectives: "kalten Wassers"


def _table(cell):
    return tuple(tuple(cell(row, column) for column in range(4)) for row in range(4))


def der_word(stem: str):
    """German forms of a word that declines like "dieser": (word, ending of the adjective after it)."""
    return _table(lambda row, column: (stem + STRONG[row][column], WEAK[row][column]))


def ein_word(word: str):
    """German forms of a word that declines like "mein", mixed declension after it."""
    return _table(
        lambda row, column: (
            (word, STRONG[row][column])
            if (row, column) in BARE_CELLS
            else (word + STRONG[row][column], WEAK[row][column])
        )
    )


def no_ending(word: str):
    """German forms of a number word, or of no article at all: strong declension after it."""
    return _table(lambda row, column: (word, STRONG_GENITIVE if row < 2 and column == 3 else STRONG[row][column]))


def strong_word(stem: str):
    """German forms of "einige" and "viele", which decline like the adjective after them."""
    return _table(lambda row, column: (stem + STRONG[row][column], STRONG[row][column]))


def _possessive(english: str, german: str, french: tuple[str, str, str], *before_vowel: str) -> Determiner:
    return Determiner("possessive", english, ein_word(german), french, before_vowel)


THE = Determiner(
    "the", "the", _table(lambda row, column: (DEFINITE[row][column], WEAK[row][column])), ("le", "la", "les")
)
A = Determiner("indefinite", "a", ein_word("ein"), ("un", "une", "des"))
BARE = Determiner("indefinite", "", no_ending(""), ("", "", "des"))
MASS = Determiner("mass", "", no_ending(""), ("de le", "de la", ""))
THIS = Determiner("this", "this", der_word("dies"), ("ce", "cette", "ces"), ("cet", "cette"))
THESE = THIS._replace(english="these")
NO = Determiner("no", "no", ein_word("kein"), ("aucun", "aucune", "aucuns"))
EVERY = Determiner("every", "every", der_word("jed"), ("chaque", "chaque", ""))
SOME = Determiner("some", "some", strong_word("einig"), ("", "", "quelques"))
MANY = Determiner("many", "many", strong_word("viel"), ("", "", "beaucoup de"))
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
        no_ending(german_number(n)),
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

CAN = Modal(
    ("can", "can"),
    ("cannot", "cannot"),
    ("kann", "kann", "können", "können"),
    ("kann", "kann", "können", "können"),
    ("peux", "peut", "pouvons", "peuvent"),
)
MUST = Modal(
    ("must", "must"),
    ("must not", "must not"),
    ("muss", "muss", "müssen", "müssen"),
    ("darf", "darf", "dürfen", "dürfen"),
    ("dois", "doit", "devons", "doivent"),
)
SHOULD = Modal(
    ("should", "should"),
    ("should not", "should not"),
    ("sollte", "sollte", "sollten", "sollten"),
    ("sollte", "sollte", "sollten", "sollten"),
    ("devrais", "devrait", "devrions", "devraient"),
)
WANT = Modal(
    ("wants to", "want to"),
    ("does not want to", "do not want to"),
    ("will", "will", "wollen", "wollen"),
    ("will", "will", "wollen", "wollen"),
    ("veux", "veut", "voulons", "veulent"),
)
WILL = Modal(
    ("will", "will"),
    ("will not", "will not"),
    ("werde", "wird", "werden", "werden"),
    ("werde", "wird", "werden", "werden"),
    ("vais", "va", "allons", "vont"),
)
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
January Januar janvier
February Februar février
March März mars
April April avril
May Mai mai
June Juni juin
July Juli juillet
August August août
September September septembre
October Oktober octobre
November November novembre
December Dezember décembre
"""
DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
WEEKDAYS = """
Monday Montag lundi
Tuesday Dienstag mardi
Wednesday Mittwoch mercredi
Thursday Donnerstag jeudi
Friday Freitag vendredi
Saturday Samstag samedi
Sunday Sonntag dimanche
"""


def date(day: int, english: str, german: str, french: str) -> Adverbial:
    """A day of the year: on the 21st of March, am einundzwanzigsten März, le vingt et un mars."""
    return Adverbial(
        f"on the {english_ordinal(day)} of {english}",
        f"am {german_ordinal(day)} {german}",
        f"le {french_day(day)} {french}",
        True,
    )


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


DATES = tuple(
    date(day, *names)
    for names, length in zip(_rows(MONTHS), DAYS_IN_MONTH, strict=True)
    for day in range(1, length + 1)
)
WEEKDAY_ADVERBIALS = tuple(
    Adverbial(f"on {english}", f"am {german}", french) for english, german, french in _rows(WEEKDAYS)
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
