"""The cheat sheet's formulas, which are plain text, as TeX."""

import re

LETTERS = "A-Za-zα-ωΑ-ΡΤ-Ω"  # without Σ, the sum
TOKEN = re.compile(
    rf"(?P<hat>[{LETTERS}])\u0302"
    rf"|(?P<word>[{LETTERS}]+(?:_(?![a-zA-Z]{{1,2}}(?![a-zA-Z_]))[{LETTERS}]+)*)(?P<called>′?\()?"
    r"|_(?:\{(?P<index>[^}]+)\}|(?P<short>[a-zA-Z]{1,2}))"
    rf"|\^(?P<power>[{LETTERS}]+)"
    r"|(?P<exponent>[⁻ˣ²³]+)|(?P<low>[₀-₉])|(?P<other>\+=|, (?=[^,()]*=)|.)"
)
GREEK = {"σ": r"\sigma", "Φ": r"\Phi", "φ": r"\varphi", "ε": r"\varepsilon", "β": r"\beta", "π": r"\pi"}
NAMED = {"exp", "log", "max", "min", "tanh"}
SIGNS = {
    "Σ": r"\sum ", "·": r"\cdot ", "−": "-", "←": r"\leftarrow ", "+=": r"\mathrel{+}= ", "′": "'", "ᵀ": r"^\top ",
    "√": r"\sqrt ", "@": r"\mathbin{@}", "∞": r"\infty ", "…": r"\ldots ", ", ": r",\quad ",
}  # fmt: skip
EXPONENTS = str.maketrans("⁻ˣ²³", "-x23")
IS_FORMULA = re.compile(r"[=←√−]")


def tex(lines: str) -> str:
    """Return a formula of some lines, aligned at their signs of equality; a line of words stays one."""
    return r"\begin{aligned}" + r"\\ ".join(map(_line, lines.split("\n"))) + r"\end{aligned}"


def _line(line: str) -> str:
    if not IS_FORMULA.search(line):
        words = line.replace("_", r"\_")
        return rf"&\text{{{words}}}"
    return re.sub(r" ?(\\mathrel\{\+\}=|=|\\leftarrow) ?", r" &\1 ", _math(line), count=1)


def _math(text: str) -> str:
    text = re.sub(r"√(\ŵ?)", r"√{\1}", _roots(text)).replace("+=", "⊕")
    return "".join(map(_token, TOKEN.finditer(text))).replace("⊕", r"\mathrel{+}=")


def _roots(text: str) -> str:
    """Put what stands under each √ into braces: what is in parentheses, a whole sum, or one letter."""
    while (start := text.find("√(")) >= 0:
        depth, end = 1, start + 2
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = f"{text[: start + 1]}{{{text[start + 2 : end - 1]}}}{text[end:]}"
    return re.sub(r"√(Σ.*|\w\u0302?)", r"√{\1}", text)


def _token(token: re.Match[str]) -> str:
    if token["hat"]:
        return rf"\hat{{{token['hat']}}}"
    if token["word"]:
        return _word(token["word"], token["called"] or "")
    if token["index"] or token["short"]:
        return f"_{{{_math(token['index']) if token['index'] else token['short']}}}"
    if token["power"]:
        return f"^{{{_word(token['power'], '')}}}"
    if token["exponent"]:
        return f"^{{{token['exponent'].translate(EXPONENTS)}}}"
    if token["low"]:
        return f"_{ord(token['low']) - ord('₀')}"
    return SIGNS.get(token["other"], token["other"])


def _word(word: str, called: str) -> str:
    """A letter, or d and a letter, is set as a letter; a longer name upright where it is called, else in italics."""
    called = called.replace("′", "'")
    if word in NAMED:
        return rf"\{word}{called or ' '}"
    letters = word.removeprefix("d") or word
    if len(letters) == 1:
        set_ = "".join(f"{GREEK.get(letter, letter)} " if letter in GREEK else letter for letter in word)
        return f"{set_.rstrip()}{called}" if called else set_
    escaped = word.replace("_", r"\_")
    return rf"\operatorname{{{escaped}}}{called}" if called or word == "softmax" else rf"\mathit{{{escaped}}}"
