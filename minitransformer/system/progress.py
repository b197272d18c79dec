"""A progress bar on standard error, tqdm's. Without the package none is drawn."""

from collections.abc import Iterable, Iterator
from typing import Any, Self, TextIO

from . import WEBASSEMBLY


def tqdm(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return tqdm's bar, or one that stays silent where tqdm is missing."""
    try:
        from tqdm.std import tqdm as bar  # here: many programs draw none
    except ImportError:
        return _NoBar(items)
    if WEBASSEMBLY:
        bar.monitor_interval = 0  # else one watches it
    return bar(items, **options)


class _NoBar:
    """The methods of a bar that are called here."""

    def __init__(self, items: Iterable[Any] | None) -> None:
        self.items = items

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items or ())

    def update(self, count: int = 1) -> None:
        pass

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        pass

    def write(self, line: str, file: TextIO) -> None:
        print(line, file=file)
