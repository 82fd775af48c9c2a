"""The journal of a run at work: what it recalls instead of asking, and what it writes down before it goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, Protocol

from langgraph.errors import GraphBubbleUp

from frames.errors import CactusError
from frames.frame import Subtask
from frames.journal import AnswerKind, Entry, Key, Origin, Outcome, as_lines, difference, digest
from frames.state import Call

Mode = Literal["continue", "anew", "replay"]
"""``continue``: what was answered is not asked again; ``anew``: replies that were none are; ``replay``: nothing is."""


class Book(Protocol):
    """Where the entries of a run are kept."""

    async def write(self, entry: Entry) -> None:
        """Keep ``entry``, in place of one with its key, and return once that is certain."""
        ...

    async def find(self, memo: str) -> Entry | None:
        """Return the answer that another run was given to an equal request."""
        ...


class ReplayError(CactusError):
    """A replay asks, or answers, something else than was recorded."""


class MissedError(GraphBubbleUp):
    """A replay asks what the journal does not hold: no frame's failure, but the end of the replay.

    ``beyond``: the recorded run stopped before this.
    """

    def __init__(self, message: str, *, beyond: bool) -> None:
        super().__init__(message)
        self.beyond = beyond


class Journal:
    """The entries of one run. Without a ``book`` they are kept in memory, for the length of the run.

    ``ended`` is whether the recorded run came to its end: a replay that asks for more than it holds is then a fault.
    """

    def __init__(
        self, entries: Iterable[Entry] = (), book: Book | None = None, mode: Mode = "continue", *, ended: bool = True
    ) -> None:
        self.mode: Mode = mode
        self.recalled = self.repeated = 0
        self._entries = {entry["key"]: entry for entry in entries}
        self._by_memo = {e["memo"]: e for e in self._entries.values() if e["memo"] and e["outcome"] == "answer"}
        self._seq = max((entry["seq"] for entry in self._entries.values()), default=0)
        self._book, self._ended = book, ended
        self._memo: dict[str, asyncio.Future[Entry]] = {}
        self._used: set[Key] = set()

    @property
    def replays(self) -> bool:
        """Whether nothing may be asked."""
        return self.mode == "replay"

    @property
    def empty(self) -> bool:
        """Whether it holds nothing: a run that was saved before there were journals."""
        return not self._entries

    def calls(self) -> list[Call]:
        """Return the model calls that this run has paid for, those that were no answer too."""
        return [
            Call(
                frame=entry["key"].frame,
                role=entry["key"].role,
                attempt=entry["key"].attempt,
                model=entry["model"],
                input_tokens=entry["input_tokens"],
                output_tokens=entry["output_tokens"],
                estimated=entry["estimated"],
            )
            for entry in sorted(self._entries.values(), key=lambda entry: entry["seq"])
            if entry["key"].kind == "call" and entry["origin"] == "run" and entry["outcome"] != "fault"
        ]

    def asked(self) -> list[tuple[str, str]]:
        """Return the frame and role of each model call that has a reply here, wherever that is from."""
        return [(k.frame, k.role) for k, e in self._entries.items() if k.kind == "call" and e["outcome"] != "fault"]

    def saved_calls(self) -> int:
        """Return how many model calls an equal request's answer has spared."""
        return sum(e["key"].kind == "call" and e["origin"] == "reuse" for e in self._entries.values())

    def of(self, frame: str, kind: AnswerKind) -> list[Entry]:
        """Return the entries of a frame that are of one kind."""
        return [entry for key, entry in self._entries.items() if key.frame == frame and key.kind == kind]

    def knows_below(self, frame: str) -> bool:
        """Whether anything was asked on behalf of frames below ``frame``: its plan was followed once."""
        return any(key.frame.startswith(f"{frame}.") for key in self._entries)

    def holds(self, key: Key) -> bool:
        """Whether there is an entry of that key."""
        return key in self._entries

    def recall(self, key: Key, asked: Any, *, renewed: bool = False) -> Entry | None:
        """Return the answer to a request; ``None`` where it must be asked.

        ``renewed``: what was taken over from another run does not count.

        Raises:
            MissedError: nothing may be asked, and the recorded run asked something else here, or had stopped.
        """
        entry = self._entries.get(key)
        if entry and renewed and entry["origin"] == "fork":
            return None
        if entry and (entry["outcome"] == "answer" or self.replays or self._settled(entry)):
            self._used.add(key)
            self.recalled += key.kind == "call"
            return entry
        if self.replays:
            self._refuse(key, asked)
        return None

    def _settled(self, entry: Entry) -> bool:
        return entry["outcome"] == "unusable" and self.mode == "continue"

    def _refuse(self, key: Key, asked: Any) -> None:
        same = [e for k, e in self._entries.items() if k[:4] == key[:4] and k not in self._used and k.position >= 0]
        if not self._ended:  # what was taken over from another run, the change may have made differ
            same = [entry for entry in same if entry["origin"] != "fork"]
        if not same and not self._ended:
            raise MissedError(f"{key.frame}: {key.role}: the recorded run stopped here", beyond=True)
        before: Any = min(same, key=lambda entry: entry["seq"])["asked"] if same else "(nothing more)"
        raise MissedError(
            f"{key.frame}: {key.role}, attempt {key.attempt}: the {key.kind} differs from the recorded one:\n"
            f"{difference(before, asked) or chr(10).join(as_lines(asked))}",
            beyond=False,
        )

    async def record(
        self,
        key: Key,
        asked: Any,
        answer: Any,
        *,
        outcome: Outcome = "answer",
        origin: Origin = "run",
        memo: str | None = None,
        call: Call | None = None,
    ) -> Entry:
        """Write an answer down and return once it is kept, also where whoever asked is cancelled meanwhile."""
        known = self._entries.get(key)
        self.repeated += (
            key.kind == "call"
            and origin == "run"
            and known is not None
            and known["outcome"] == "answer"
            and known["origin"] != "fork"
        )
        self._seq += 1
        entry = Entry(
            key=key,
            seq=self._seq,
            outcome=outcome,
            origin=origin,
            memo=memo,
            model=call["model"] if call else "",
            input_tokens=call["input_tokens"] if call else 0,
            output_tokens=call["output_tokens"] if call else 0,
            estimated=bool(call and call["estimated"]),
            asked=asked,
            answer=answer,
        )
        if known and known["outcome"] == "unusable":  # it was paid for, and stays in the account
            older = Entry({**known, "key": key._replace(position=-known["seq"])})
            self._entries[older["key"]] = older
            await self._write(older)
        self._entries[key] = entry
        self._used.add(key)
        await self._write(entry)
        return entry

    async def _write(self, entry: Entry) -> None:
        if self._book:
            await asyncio.shield(asyncio.ensure_future(self._book.write(entry)))

    async def once(self, key: Key, asked: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        """Return the recorded answer to a request, or what ``work`` gives, a JSON value, written down first."""
        entry = self.recall(key, asked)
        return entry["answer"] if entry else (await self.record(key, asked, await work()))["answer"]

    async def reused(self, memo: str, across: bool) -> Entry | None:
        """Return the answer to an equal request, waiting for one that is under way; ``None``: this one must be made.

        After ``None`` the caller owes ``made`` or ``not_made``. ``across``: other runs' answers serve too.
        """
        while waiting := self._memo.get(memo):
            try:
                return await asyncio.shield(waiting)
            except (CactusError, asyncio.CancelledError):
                if not waiting.cancelled():
                    raise
        self._memo[memo] = asyncio.get_running_loop().create_future()
        found = self._by_memo.get(memo)
        if found is None and across and self._book:
            found = await self._book.find(memo)
        if found:
            self.made(memo, found)
        return found

    def made(self, memo: str, entry: Entry) -> None:
        """Give a call's answer to those that wait for it."""
        if not self._memo[memo].done():
            self._memo[memo].set_result(entry)

    def not_made(self, memo: str) -> None:
        """Say that a call gave no answer: the next one that asks makes its own."""
        self._memo.pop(memo).cancel()


class Approved:
    """The plans that a person has approved, as the journal has them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def approved(self, frame: str) -> list[Subtask] | None:
        """Return the plan that was approved last for ``frame``; ``None`` where there is none."""
        found = [entry for entry in self._journal.of(frame, "decision") if "approved" in entry["asked"]]
        return max(found, key=lambda entry: entry["seq"])["answer"] if found else None

    async def approve(self, frame: str, plan: list[Subtask]) -> None:
        """Keep ``plan`` as the one approved for ``frame``; told once more, it is the same."""
        asked = {"approved": plan}
        if self.approved(frame) != plan and not self._journal.replays:
            await self._journal.record(key_of((frame, "approve", 0), "decision", asked, {}), asked, plan)


def key_of(step: tuple[str, str, int], kind: AnswerKind, asked: Any, counts: dict[str, int]) -> Key:
    """Return the key of a request; ``counts`` are those of the step's equal requests so far."""
    request = digest(asked)
    position = counts.get(kind + request, 0)
    counts[kind + request] = position + 1
    return Key(*step, kind, request, position)
