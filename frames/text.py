"""Text on its way in and out: made safe to store, and cut for display."""

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(text: str) -> str:
    """Return ``text`` with every NUL and lone surrogate replaced by U+FFFD.

    The checkpoint serializer would turn a lone surrogate into ``?`` without a word, and PostgreSQL refuses a
    NUL. Applied where text enters (task, replies, components' results), so that it is the same text before
    and after a resume. Everything else, right-to-left marks and four-byte characters too, is kept.
    """
    return _UNSTORABLE.sub(REPLACEMENT, text)


def cut(text: str, width: int = 80) -> str:
    """Return at most ``width`` characters of ``text``."""
    return text if len(text) <= width else text[:width]


def one_line(text: str, width: int = 80) -> str:
    """Return ``text`` on one line of at most ``width`` characters, an ellipsis where it was cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def same_task(left: str, right: str) -> bool:
    """Whether two task texts say the same up to case, white space and punctuation at the ends."""
    return essence(left) == essence(right)


def essence(text: str) -> str:
    """Return what ``same_task`` compares of a task's text."""
    return " ".join(text.casefold().split()).strip(" .,;:!?\"'`*-")


def estimate_tokens(text: str) -> int:
    """Return the usual estimate of ``text``'s tokens: one for four characters, rounded up."""
    return -(-len(text) // 4)
