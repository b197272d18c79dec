"""Parse trees as sequences of tokens, so that a translator can learn to parse. Source: Vaswani 2017, §6.3.

A tree `(S (NP (D the) (N dog)) (VP (V sleeps)) (Punct .))` is written as in Vinyals et al. 2015: one token opens a
constituent, another closes it, and each word is XX, so that a model has only the structure to learn:
`(S (NP XX XX )NP (VP XX )VP XX )S`.
"""

import re

WORD = "XX"


def linearise(tree: str) -> str:
    """Return the tree as tokens: each word becomes XX, and the part of speech directly above it is left out.

    Raises `ValueError` if brackets do not match, or a word is not below a part of speech.
    """
    tokens, rest = _constituent(re.findall(r"[()]|[^\s()]+", tree), tree)
    if rest:
        raise ValueError(f"{tree!r} goes on after its tree: {' '.join(rest)}")
    return " ".join(tokens)


def _constituent(tokens: list[str], tree: str) -> tuple[list[str], list[str]]:
    """Linearise the tree at the beginning of `tokens`; return the tokens of its line and the rest of `tokens`."""
    if len(tokens) < 3 or tokens[0] != "(" or tokens[1] in "()":
        raise ValueError(f"{tree!r} is not a tree: expected '(' and a label where {' '.join(tokens[:2])!r} stands")
    label, rest = tokens[1], tokens[2:]
    children: list[list[str]] = []
    while rest and rest[0] == "(":
        child, rest = _constituent(rest, tree)
        children.append(child)
    if not rest or (children and rest[0] != ")"):
        raise ValueError(f"{tree!r} is not a tree: {label} is not closed, or has words beside constituents")
    if children:
        return [f"({label}", *(token for child in children for token in child), f"){label}"], rest[1:]
    end = rest.index(")") if ")" in rest else 0
    if not end or "(" in rest[:end]:
        raise ValueError(f"{tree!r} is not a tree: {label} has no words, or is not closed")
    return [WORD] * end, rest[end + 1 :]
