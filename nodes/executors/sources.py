"""Sources: the documents that a text names, and that an answer is not left without."""

import re
from collections.abc import Iterable

_SOURCE = re.compile(r"\[source: ([^\]\n]+)\]")
MOST = 10
"""Sources that are named behind an answer at most."""


def sources(*texts: str) -> list[str]:
    """Return the sources that ``texts`` name as ``[source: guide.md]``, each once."""
    return list(dict.fromkeys(source for text in texts for source in _SOURCE.findall(text)))


def with_sources(answer: str, seen: Iterable[str]) -> str:
    """Return ``answer`` with the sources it was made from behind it, where it names none of them."""
    known = list(dict.fromkeys(seen))
    if not known or any(source in answer for source in known):
        return answer
    return f"{answer}\n\nSources read: {', '.join(f'[source: {source}]' for source in known[:MOST])}"
