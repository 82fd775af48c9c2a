"""Words as SQLite's full-text search finds them, and questions as it understands them.

Its tokenizer folds case and accents and cuts English words to their stems. Chinese, Japanese and Korean, written
without spaces, are indexed by pairs of characters, as Lucene does.
"""

import re
import unicodedata
from collections.abc import Iterator

from frames.text import clean

TOKENIZER = "porter unicode61 remove_diacritics 2"

_MOST_TERMS = 64
_PREFIX_FROM = 4
"""Characters from which on a word also finds words that begin with it."""

_RUN = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_WORD = re.compile(r"[^\W_]+")
_HYPHEN = re.compile(r"(\w)-\n(\w)")
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a about all also an and any are as at be been but by can could did do does for from had has have how i if "
        "in into is it its may me my no not of on or our should so some such than that the their them then there "
        "these they this those to was we were what when where which who whom whose why will with would you your",
    )
)


def indexed(text: str) -> str:
    """Return ``text`` with what is to be found in it set apart by spaces."""
    joined = unicodedata.normalize("NFKC", _HYPHEN.sub(r"\1\2", text))
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", joined)


def expression(query: str) -> str:
    """Return ``query`` in the language of FTS5: any of its words, or of those that begin so; empty without words."""
    words = list(dict.fromkeys(_words(query)))
    telling = [word for word in words if word not in _STOP] or words
    return " OR ".join(term for word in telling[:_MOST_TERMS] for term in _terms(word))


def _words(query: str) -> Iterator[str]:
    plain = unicodedata.normalize("NFKC", clean(query))
    for run in _RUN.findall(plain):
        yield from _pairs(run)[: max(1, len(run) - 1)]
    for word in _WORD.findall(_RUN.sub(" ", plain)):
        yield word.casefold()


def _terms(word: str) -> list[str]:
    if _RUN.match(word):
        return [f'"{word}"' if len(word) > 1 else f'"{word}"*']
    return [f'"{word}"'] + ([f'"{word}"*'] if len(word) >= _PREFIX_FROM else [])


def _pairs(run: str) -> list[str]:
    """Return the pairs of neighbours in ``run``, and its last character, which a single one is found by."""
    return [run[place : place + 2] for place in range(len(run))]
