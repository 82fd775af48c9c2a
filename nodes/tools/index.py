"""Search over a folder of documents, without a key and without a server: SQLite's full-text index."""

import difflib
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from frames.errors import UsageError
from frames.text import clean
from nodes.tools.extract import extract, has_headings
from nodes.tools.folder import files_in, folder_of
from nodes.tools.passages import passages
from nodes.tools.terms import TOKENIZER, expression, indexed
from nodes.tools.unreadable import UnreadableError

_PER_DOCUMENT = 3
_MOST_CHARACTERS = 100_000_000
_MOST_RESULTS = 20

_TABLES = f"""
CREATE TABLE documents (id INTEGER PRIMARY KEY, source TEXT UNIQUE, text TEXT);
CREATE TABLE passages (id INTEGER PRIMARY KEY, document INTEGER, title TEXT, start INTEGER, length INTEGER);
CREATE VIRTUAL TABLE words USING fts5(title, text, content='', tokenize='{TOKENIZER}');
"""
_SEARCH = """
SELECT passages.id, document FROM words JOIN passages ON passages.id = words.rowid
WHERE words MATCH ? ORDER BY bm25(words, 2.0, 1.0), passages.id
"""  # bm25 gives the better passages the lower numbers
_PASSAGE = """
SELECT source, title, substr(text, start + 1, length), start
FROM passages JOIN documents ON documents.id = document WHERE passages.id = ?
"""


class Passage(NamedTuple):
    """A part of a document.

    ``source`` is the document's path relative to the folder, with slashes; ``start`` is where ``text`` begins in
    the document's text, in characters; ``title`` is the heading it stands under, or the file's name.
    """

    source: str
    title: str
    text: str
    start: int


class DocumentIndex:
    """The documents of one folder; made by ``build``. Safe to use from several threads.

    ``documents`` counts those that can be found; ``skipped`` tells each path that was left out, and why.
    """

    def __init__(self, folder: Path) -> None:
        self.documents = 0
        self.skipped: list[str] = []
        self._folder = folder
        self._characters = 0
        self._lock = threading.Lock()
        # without a name it is SQLite's own temporary file, which grows on the disk rather than in memory
        self._database = sqlite3.connect("", check_same_thread=False)

    @classmethod
    def build(cls, folder: Path) -> "DocumentIndex":
        """Return the index of the documents below ``folder``. Blocks for as long as reading them takes.

        Raises:
            UsageError: there is no such folder, or nothing to read in it.
        """
        index = cls(folder_of(folder))
        try:
            index._fill(folder)
        except BaseException:
            index.close()
            raise
        return index

    def search(self, query: str, limit: int = 5) -> list[Passage]:
        """Return the passages that fit ``query`` best, at most three of one document; any text is a query."""
        wanted = expression(query)
        limit = max(1, min(limit, _MOST_RESULTS))
        if not wanted:
            return []
        with self._lock:
            found = _first(self._database.execute(_SEARCH, [wanted]), limit)
            return [Passage(*self._database.execute(_PASSAGE, [each]).fetchone()) for each in found]

    def read(self, source: str, start: int = 0, length: int = 4_000) -> str:
        """Return ``length`` characters of a document's text from ``start`` on; empty behind its end.

        Raises:
            UsageError: there is no document ``source``; names those that are called alike.
        """
        start = max(0, start)
        return self._text(source)[start : start + max(0, length)]

    def length(self, source: str) -> int:
        """Return how many characters a document's text has.

        Raises:
            UsageError: there is no document ``source``.
        """
        return len(self._text(source))

    def sources(self) -> list[str]:
        """Return the paths of all documents, relative to the folder."""
        with self._lock:
            return [source for (source,) in self._database.execute("SELECT source FROM documents ORDER BY source")]

    def close(self) -> None:
        """Remove the index; the documents stay."""
        with self._lock:
            self._database.close()

    def _text(self, source: str) -> str:
        name = clean(source).strip().removeprefix("./")
        with self._lock:
            row = self._database.execute("SELECT text FROM documents WHERE source = ?", [name]).fetchone()
        if row is None:
            raise UsageError(f"there is no document {source!r}{_alike(name, self.sources())}")
        return str(row[0])

    def _fill(self, given: Path) -> None:
        try:
            self._database.executescript(_TABLES)
        except sqlite3.OperationalError as error:
            raise UsageError(f"--docs needs a Python whose SQLite has FTS5 ({error})") from error
        for path in files_in(self._folder, self._skip):
            try:
                self._add(path, extract(path))
            except UnreadableError as error:
                self._skip(path, str(error))
        self._database.commit()
        if not self.documents:
            raise UsageError(f"{given} holds no document that can be read{_some(self.skipped)}")

    def _add(self, path: Path, text: str) -> None:
        self._characters += len(text)
        if self._characters > _MOST_CHARACTERS:
            raise UnreadableError(f"the documents before it fill the index ({_MOST_CHARACTERS:,} characters)")
        source = self._name(path)
        try:
            document = self._insert("documents (source, text)", source, text)
        except sqlite3.IntegrityError as error:
            raise UnreadableError("another file's name is stored the same") from error
        for title, start, end in passages(text, has_headings(path)):
            name = PurePosixPath(source).name
            passage = self._insert(
                "passages (document, title, start, length)", document, title or name, start, end - start
            )
            self._insert("words (rowid, title, text)", passage, indexed(f"{title} {name}"), indexed(text[start:end]))
        self.documents += 1

    def _insert(self, columns: str, *values: str | int) -> int:
        marks = ", ".join("?" * len(values))
        row = self._database.execute(f"INSERT INTO {columns} VALUES ({marks})", values)  # noqa: S608  # ours
        return row.lastrowid or 0

    def _skip(self, path: Path, reason: str) -> None:
        self.skipped.append(f"{self._name(path)}: {reason}")

    def _name(self, path: Path) -> str:
        return clean(path.relative_to(self._folder).as_posix())


def _first(found: Iterable[tuple[int, int]], limit: int) -> list[int]:
    """Return the first passages of (passage, document), not too many of one document."""
    taken: list[int] = []
    counts: Counter[int] = Counter()
    for passage, document in found:
        if counts[document] < _PER_DOCUMENT:
            taken.append(passage)
        counts[document] += 1
        if len(taken) == limit:
            break
    return taken


def _alike(name: str, sources: list[str]) -> str:
    inside = [source for source in sources if name and name.casefold() in source.casefold()]
    close = list(dict.fromkeys([*difflib.get_close_matches(name, sources, 3), *inside]))[:3] or sources[:5]
    return f"; there is {', '.join(close)}"


def _some(skipped: list[str]) -> str:
    return f" ({len(skipped)} left out: {'; '.join(skipped[:3])})" if skipped else ": put some into it"
