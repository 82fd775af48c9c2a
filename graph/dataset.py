"""Tasks with what is expected of them, from JSON lines, and the judges that need no model."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from frames.errors import UsageError
from frames.text import clean, one_line

JudgeName = Literal["exact", "contains", "regex", "model"]

JUDGES: tuple[JudgeName, ...] = get_args(JudgeName)

_FORM = '{"task": "…", "expected": "…", "judge": "contains"}, of which judge may be left out'


@dataclass(frozen=True)
class Row:
    """One task of a data set, the line it stands on, what is expected of its answer, and who judges that."""

    line: int
    task: str
    expected: str
    judge: JudgeName

    def holds(self, answer: str) -> bool:
        """Whether an answer is as expected; for the judges ``exact``, ``contains`` and ``regex``.

        ``exact`` leaves white space around either out of account, ``contains`` the case of letters; ``regex`` looks
        for the pattern anywhere in the answer.
        """
        if self.judge == "exact":
            return answer.strip() == self.expected.strip()
        if self.judge == "contains":
            return self.expected.strip().casefold() in answer.casefold()
        return re.search(self.expected, answer) is not None


def read_rows(text: str, source: str, judge: JudgeName) -> list[Row]:
    """Return the rows of a text of JSON lines; blank lines are left out.

    Args:
        text: one object a line: ``task``, ``expected`` (a text or a number) and, where it likes, ``judge``.
        source: what to call the text in messages.
        judge: judges the rows that name none.

    Raises:
        UsageError: there is none, or one is not of that form; the message names each bad line.
    """
    rows, faults = list[Row](), list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        row = _row(number, line, judge)
        if isinstance(row, Row):
            rows.append(row)
        else:
            faults.append(f"line {number}: {row}")
    if faults:
        raise UsageError(f"{source}: {_listed(faults)}; write {_FORM}")
    if not rows:
        raise UsageError(f"{source}: it has no task; write one a line: {_FORM}")
    return rows


def _listed(faults: Sequence[str], most: int = 5) -> str:
    more = [f"and {len(faults) - most} more"] if len(faults) > most else []
    return "; ".join([*faults[:most], *more])


def _row(number: int, line: str, judge: JudgeName) -> Row | str:
    """Return the row on a line, or what is wrong with it."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON ({one_line(str(error), 80)})"
    if not isinstance(value, dict):
        return "no JSON object"
    given = cast("dict[str, Any]", value)
    if unknown := sorted(given.keys() - {"task", "expected", "judge"}):
        return f"unknown key {unknown[0]!r}"
    task, expected, named = given.get("task"), given.get("expected"), given.get("judge", judge)
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        expected = json.dumps(expected)
    for name, text in (("task", task), ("expected", expected)):
        if not isinstance(text, str) or not text.strip():
            return f"{name} is missing or no text"
    if named not in JUDGES:
        return f"there is no judge {named!r}: judges are {', '.join(JUDGES)}"
    row = Row(number, clean(str(task)), clean(str(expected)), named)
    return _fault(row) or row


def _fault(row: Row) -> str | None:
    try:
        re.compile(row.expected if row.judge == "regex" else "")
    except (re.error, RecursionError, OverflowError) as error:
        return f"expected is no regular expression ({one_line(str(error), 80)})"
    return None
