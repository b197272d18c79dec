"""Number words from 0 to 100 in three languages, and the ordinals that dates need."""

ENGLISH_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_UNITS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
).split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
FRENCH_UNITS = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf"
).split()
FRENCH_TENS = "vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split()
GERMAN_ORDINALS = {1: "ersten", 3: "dritten", 7: "siebten", 8: "achten"}


def english_number(n: int) -> str:
    """Return the English cardinal: 21 is "twenty-one". Raises ValueError outside 0 … 100."""
    tens, unit = _digits(n)
    if n == 100:
        return "one hundred"
    if n < 20:
        return ENGLISH_UNITS[n]
    return ENGLISH_TENS[tens - 2] + (f"-{ENGLISH_UNITS[unit]}" if unit else "")


def german_number(n: int) -> str:
    """Return the German cardinal, unit before ten: 21 is "einundzwanzig". Raises ValueError outside 0 … 100."""
    tens, unit = _digits(n)
    if n == 100:
        return "einhundert"
    if n < 20:
        return GERMAN_UNITS[n]
    before = "" if not unit else "einund" if unit == 1 else f"{GERMAN_UNITS[unit]}und"
    return before + GERMAN_TENS[tens - 2]


def french_number(n: int, feminine: bool = False) -> str:
    """Return the French cardinal: 21 is "vingt et un", before a feminine noun "vingt et une"; 80 is "quatre-vingts".

    Raises ValueError outside 0 … 100.
    """
    tens, unit = _digits(n)
    if tens in (7, 9):  # soixante-dix and quatre-vingt-dix count on from sixty and eighty
        unit += 10
    if n in (80, 100):
        return "quatre-vingts" if n == 80 else "cent"
    if n < 20:
        word = FRENCH_UNITS[n]
    elif unit == 0:
        word = FRENCH_TENS[tens - 2]
    else:
        joined = " et " if unit in (1, 11) and n < 80 else "-"
        word = FRENCH_TENS[tens - 2] + joined + FRENCH_UNITS[unit]
    return word + "e" if feminine and word.endswith("un") else word


def english_ordinal(n: int) -> str:
    """Return the English ordinal in figures, as in dates: 21 is "21st"."""
    suffix = "th" if 11 <= n % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def german_ordinal(n: int) -> str:
    """Return the German ordinal in the dative, after "am": 21 is "einundzwanzigsten"."""
    return GERMAN_ORDINALS.get(n) or german_number(n) + ("ten" if n < 20 else "sten")


def french_day(n: int) -> str:
    """Return the day of the month in French: an ordinal for the first, cardinals for the others."""
    return "premier" if n == 1 else french_number(n)


def _digits(n: int) -> tuple[int, int]:
    if not 0 <= n <= 100:
        raise ValueError(f"n must be between 0 and 100 to be written in words, got {n}")
    return divmod(n, 10)
