"""The languages of the grammar against what was written by hand: sentences, number words, endings, forms."""

from pathlib import Path

import pytest

from minitransformer.grammar import translate
from minitransformer.grammar.lexicon import Lexicon
from minitransformer.grammar.lexicon import function_words as words
from minitransformer.grammar.lexicon.adjectives import ADJECTIVES
from minitransformer.grammar.lexicon.nouns import NOUNS
from minitransformer.grammar.lexicon.tables import rows
from minitransformer.grammar.numerals import (
    english_number,
    english_ordinal,
    french_day,
    french_number,
    german_number,
    german_ordinal,
)

LEXICON = Lexicon()
TABLE = Path(__file__).with_name("grammar_sentences.tsv")
SENTENCES = [
    line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
]


def test_the_table_is_large():
    assert len({english for english, _, _ in SENTENCES}) >= 250


@pytest.mark.parametrize(("english", "german", "french"), SENTENCES)
def test_translations_written_by_hand(english, german, french):
    example = translate(english)
    assert example.german == german
    assert example.french == french


UNITS = "one two three four five six seven eight nine".split()
TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ENGLISH = ["zero", *UNITS, *TEENS, *(word for ten in TENS for word in (ten, *(f"{ten}-{unit}" for unit in UNITS)))]

EINER = "ein zwei drei vier fünf sechs sieben acht neun".split()
ELFER = "zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()
ZEHNER = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
GERMAN = ["null", "eins", *EINER[1:], *ELFER]
GERMAN += [word for ten in ZEHNER for word in (ten, *(f"{unit}und{ten}" for unit in EINER))]

FRENCH = """zéro, un, deux, trois, quatre, cinq, six, sept, huit, neuf, dix, onze, douze, treize, quatorze, quinze,
seize, dix-sept, dix-huit, dix-neuf, vingt, vingt et un, vingt-deux, vingt-trois, vingt-quatre, vingt-cinq, vingt-six,
vingt-sept, vingt-huit, vingt-neuf, trente, trente et un, trente-deux, trente-trois, trente-quatre, trente-cinq,
trente-six, trente-sept, trente-huit, trente-neuf, quarante, quarante et un, quarante-deux, quarante-trois,
quarante-quatre, quarante-cinq, quarante-six, quarante-sept, quarante-huit, quarante-neuf, cinquante, cinquante et un,
cinquante-deux, cinquante-trois, cinquante-quatre, cinquante-cinq, cinquante-six, cinquante-sept, cinquante-huit,
cinquante-neuf, soixante, soixante et un, soixante-deux, soixante-trois, soixante-quatre, soixante-cinq, soixante-six,
soixante-sept, soixante-huit, soixante-neuf, soixante-dix, soixante et onze, soixante-douze, soixante-treize,
soixante-quatorze, soixante-quinze, soixante-seize, soixante-dix-sept, soixante-dix-huit, soixante-dix-neuf,
quatre-vingts, quatre-vingt-un, quatre-vingt-deux, quatre-vingt-trois, quatre-vingt-quatre, quatre-vingt-cinq,
quatre-vingt-six, quatre-vingt-sept, quatre-vingt-huit, quatre-vingt-neuf, quatre-vingt-dix, quatre-vingt-onze,
quatre-vingt-douze, quatre-vingt-treize, quatre-vingt-quatorze, quatre-vingt-quinze, quatre-vingt-seize,
quatre-vingt-dix-sept, quatre-vingt-dix-huit, quatre-vingt-dix-neuf"""

GERMAN_ORDINALS = """ersten zweiten dritten vierten fünften sechsten siebten achten neunten zehnten elften zwölften
dreizehnten vierzehnten fünfzehnten sechzehnten siebzehnten achtzehnten neunzehnten""".split()
GERMAN_ORDINALS += [f"{word}sten" for word in GERMAN[20:32]]


def test_number_words():
    assert [english_number(n) for n in range(101)] == [*ENGLISH, "one hundred"]
    assert [german_number(n) for n in range(101)] == [*GERMAN, "einhundert"]
    assert [french_number(n) for n in range(101)] == [*FRENCH.replace("\n", " ").split(", "), "cent"]


def test_french_numbers_agree_in_gender_where_they_end_in_one():
    feminine = {n: french_number(n, feminine=True) for n in range(101) if french_number(n, True) != french_number(n)}
    tens = {21: "vingt", 31: "trente", 41: "quarante", 51: "cinquante", 61: "soixante"}
    assert feminine == {1: "une", **{n: f"{word} et une" for n, word in tens.items()}, 81: "quatre-vingt-une"}


def test_days_of_the_month():
    assert [english_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)] == (
        "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 30th 31st".split()
    )
    assert [german_ordinal(n) for n in range(1, 32)] == GERMAN_ORDINALS
    assert [french_day(n) for n in (1, 2, 11, 21, 31)] == ["premier", "deux", "onze", "vingt et un", "trente et un"]


@pytest.mark.parametrize("number", [german_number, english_number, french_number])
@pytest.mark.parametrize("n", [-1, 101])
def test_numbers_beyond_a_hundred_are_refused(number, n):
    with pytest.raises(ValueError, match="n must be between 0 and 100"):
        number(n)


# Rows masculine, neuter, feminine, plural; columns nominative, accusative, dative, genitive.
ENDINGS = {
    "the": """der alte, den alten, dem alten, des alten
              das alte, das alte, dem alten, des alten
              die alte, die alte, der alten, der alten
              die alten, die alten, den alten, der alten""",
    "this": """dieser alte, diesen alten, diesem alten, dieses alten
               dieses alte, dieses alte, diesem alten, dieses alten
               diese alte, diese alte, dieser alten, dieser alten
               diese alten, diese alten, diesen alten, dieser alten""",
    "no": """kein alter, keinen alten, keinem alten, keines alten
             kein altes, kein altes, keinem alten, keines alten
             keine alte, keine alte, keiner alten, keiner alten
             keine alten, keine alten, keinen alten, keiner alten""",
    "our": """unser alter, unseren alten, unserem alten, unseres alten
              unser altes, unser altes, unserem alten, unseres alten
              unsere alte, unsere alte, unserer alten, unserer alten
              unsere alten, unsere alten, unseren alten, unserer alten""",
    "": """ alter,  alten,  altem,  alten
            altes,  altes,  altem,  alten
            alte,  alte,  alter,  alter
            alte,  alte,  alten,  alter""",
}


@pytest.mark.parametrize("english", list(ENDINGS))
def test_german_adjective_endings(english):
    determiners = (words.THE, words.THIS, words.NO, words.BARE, *words.POSSESSIVES)
    determiner = next(each for each in determiners if each.english == english)
    old = next(each for each in ADJECTIVES if each.english == "old")
    expected = [[cell.strip() for cell in line.split(",")] for line in ENDINGS[english].splitlines()]
    assert [[f"{word} {old.german[ending]}".strip() for word, ending in row] for row in determiner.german] == expected


def test_a_line_of_a_table_with_a_column_too_few_is_refused():
    with pytest.raises(ValueError, match="must have 3 columns, got 'dog"):
        rows("dog | der Hund, Hundes, Hunde", 3)


def test_german_declensions():
    nouns = {noun.english[0]: noun for kind in NOUNS.values() for noun in kind}
    assert nouns["man"].german == (("Mann", "Mann", "Mann", "Mannes"), ("Männer", "Männer", "Männern", "Männer"))
    assert nouns["boy"].german == (("Junge", "Jungen", "Jungen", "Jungen"), ("Jungen",) * 4)
    assert nouns["woman"].german == (("Frau",) * 4, ("Frauen",) * 4)
    assert nouns["car"].german == (("Auto", "Auto", "Auto", "Autos"), ("Autos",) * 4)
    assert nouns["garden"].german == (("Garten", "Garten", "Garten", "Gartens"), ("Gärten",) * 4)
    assert nouns["mother"].german == (("Mutter",) * 4, ("Mütter", "Mütter", "Müttern", "Mütter"))


def test_plurals():
    nouns = {noun.english[0]: noun for kind in NOUNS.values() for noun in kind}
    english = "child children, knife knives, box boxes, city cities, mouse mice, boy boys, wolf wolves, church churches"
    french = "horse chevaux, bird oiseaux, mouse souris, hospital hôpitaux, castle châteaux, ball ballons"
    for singular, plural in map(str.split, english.split(", ")):
        assert nouns[singular].english[1] == plural
    for singular, plural in [*map(str.split, french.split(", ")), ("potato", "pommes de terre")]:
        assert nouns[singular].french[1] == plural


def test_conjugations():
    tables = (LEXICON.intransitive, LEXICON.transitive, LEXICON.dative, LEXICON.ditransitive)
    verbs = {entry.verb.english[0]: entry.verb for table in tables for entry in table}
    assert verbs["sleep"].german == ("schlafe", "schläft", "schlafen", "schlafen")
    assert verbs["feed"].german == ("füttere", "füttert", "füttern", "füttern")
    assert verbs["resemble"].german == ("ähnle", "ähnelt", "ähneln", "ähneln")
    assert verbs["take part"].german == ("nehme", "nimmt", "nehmen", "nehmen")
    assert verbs["take part"].infinitive == "teilnehmen"
    assert verbs["cry"].english == ("cry", "cries", "cried")
    assert verbs["try on"].english == ("try on", "tries on", "tried on")
    assert verbs["dance"].french == ("danse", "danse", "dansons", "dansent")
    assert verbs["swim"].french == ("nage", "nage", "nageons", "nagent")
    assert verbs["fall asleep"].reflexive
    with_sein = "swim, run, jump, travel, get up, wake up, fall asleep, arrive, come back, go out, go away, follow"
    assert {base for base, verb in verbs.items() if verb.perfect_with_sein} == set(with_sein.split(", "))
