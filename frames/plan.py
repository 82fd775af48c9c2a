"""A plan: the subtasks that a task is split into, and what makes one unusable."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any, cast

from frames.errors import CactusError
from frames.frame import KINDS, Named, Subtask
from frames.text import clean, essence, same_task


class PlanFormError(CactusError):
    """What a decomposer gave is no list of texts at all."""


class PlanError(CactusError):
    """A plan that cannot be followed; the message names the subtask and the fault."""


def from_texts(texts: Any) -> list[Subtask]:
    """Return a plan of the given subtask texts, in order; ``None`` and blank texts are left out.

    Raises:
        PlanFormError: ``texts`` is no list of texts.
    """
    if texts is None:
        return []
    if not isinstance(texts, list | tuple):
        raise PlanFormError(f"the decomposer returned {type(texts).__name__}, not a list of texts")
    kept: list[str] = []
    for text in cast("Sequence[Any]", texts):
        if not isinstance(text, str | None):
            raise PlanFormError(f"the decomposer's subtask {len(kept) + 1} is {type(text).__name__}, not a text")
        if text and text.strip():
            kept.append(clean(text).strip())
    return [Subtask(id=str(index), task=text, kind=None, depends_on=[]) for index, text in enumerate(kept)]


def from_entries(entries: Any, was: Sequence[Subtask] = ()) -> list[Subtask]:
    """Return a plan of what a decomposer gave: texts, or mappings of ``id``, ``task``, ``kind`` and ``depends_on``.

    A mapping may have ``requires`` too: the capabilities that its task takes, by weight.

    Args:
        entries: what was given.
        was: the plan that ``entries`` are an edit of. Where it is one from findings, a subtask that keeps its id stays
            the pass, or the integration, that it was, and one with ``files`` of its own is a pass over them.

    Raises:
        PlanFormError: it is no list, or holds something else.
        PlanError: an entry lacks its task or has an unknown kind; names the subtask.
    """
    if not isinstance(entries, list | tuple):
        return from_texts(entries)
    given = cast("Sequence[Any]", entries)
    if not any(isinstance(entry, Mapping) for entry in given):
        return from_texts(given)
    plan = [_subtask(entry, index) for index, entry in enumerate(given)]
    if any("tier" in subtask for subtask in was):
        for subtask, entry in zip(plan, given, strict=True):
            _tiered(subtask, entry, was)
    return plan


def _subtask(entry: Any, index: int) -> Subtask:
    if not isinstance(entry, Mapping):
        raise PlanFormError(f"the decomposer's subtask {index + 1} is {type(entry).__name__}, not a mapping")
    fields = cast("Mapping[str, Any]", entry)
    id_ = fields.get("id")
    name = f"subtask {index + 1}" if id_ is None or id_ == "" else str(id_).strip()
    task = next((fields[key] for key in ("task", "goal", "description") if fields.get(key)), "")
    kind = fields.get("kind")
    if not isinstance(task, str) or not task.strip():
        raise PlanError(f"subtask {name!r} is blank")
    if kind is not None and str(kind).lower() not in KINDS:
        raise PlanError(f"subtask {name!r} is of the kind {kind!r}; kinds are {', '.join(KINDS)}")
    needs: Any = fields.get("depends_on") or []
    needed: Any = str(needs).split(",") if isinstance(needs, str | int) else needs
    if not isinstance(needed, list | tuple):
        raise PlanError(f"depends_on of subtask {name!r} is no list of ids")
    named = [clean(str(other)).strip() for other in cast("Sequence[Any]", needed) if other is not None]
    ids = list(dict.fromkeys(other for other in named if other))
    kinds: Any = str(kind).lower() if kind is not None else None
    subtask = Subtask(id=clean(name), task=clean(task).strip(), kind=kinds, depends_on=ids)
    if fields.get("requires"):
        subtask["requires"] = _requires(fields["requires"], name)
    return subtask


def _tiered(subtask: Subtask, entry: Mapping[str, Any], was: Sequence[Subtask]) -> None:
    """Give an edited subtask the tier, files and requirements that it had, or those of a pass over its own files."""
    given: Any = entry.get("files") or []
    files = cast("list[Any]", given if isinstance(given, list) else [None])
    if not all(isinstance(file, str) for file in files):
        raise PlanError(f"files of subtask {subtask['id']!r} is no list of paths")
    before = next((each for each in was if each["id"] == subtask["id"]), None)
    if files and (before is None or "tier" not in before):
        before = next((each for each in was if each.get("tier") == "per_file"), None)
    if before is None or "tier" not in before:
        return
    subtask["tier"] = before["tier"]
    subtask["files"] = [clean(file) for file in files or before.get("files", [])]
    subtask["requires"] = subtask.get("requires") or before.get("requires", {})


def _requires(given: Any, name: str) -> dict[str, float]:
    weights = cast("Mapping[Any, Any]", given if isinstance(given, Mapping) else {})
    if not weights or not all(isinstance(weight, int | float) and 0 < weight <= 1 for weight in weights.values()):
        raise PlanError(f"requires of subtask {name!r} is no mapping of capabilities to weights above 0, up to 1")
    return {clean(str(capability)): float(weight) for capability, weight in weights.items()}


def check(plan: Sequence[Subtask], path: Sequence[Named], max_subtasks: int | None) -> None:
    """Refuse a plan that would not make the task smaller.

    Args:
        plan: the subtasks.
        path: the frames from the root to the one that is split.
        max_subtasks: the most subtasks a plan may have; ``None`` for no limit.

    Raises:
        PlanError: too many subtasks, or none that differs from its own task or an ancestor's.
    """
    _check_count(plan, max_subtasks)
    restated = [_restated(subtask, path) for subtask in plan]
    if restated and all(restated):
        raise PlanError(f"every subtask restates the task of frame {restated[0]}")


def check_graph(plan: Sequence[Subtask], path: Sequence[Named], max_subtasks: int | None) -> None:
    """Refuse a plan whose subtasks are not apart from one another or whose dependencies cannot be followed.

    Arguments are those of ``check``; here no subtask at all may restate a task above it or a sibling.

    Raises:
        PlanError: names the subtask and the fault.
    """
    _check_count(plan, max_subtasks)
    ids = {subtask["id"] for subtask in plan}
    seen: set[str] = set()
    texts: dict[str, str] = {}
    for subtask in plan:
        name = subtask["id"]
        if name in seen:
            raise PlanError(f"two subtasks have the id {name!r}")
        seen.add(name)
        if not subtask["task"].strip():
            raise PlanError(f"subtask {name!r} is blank")
        if above := _restated(subtask, path):
            raise PlanError(f"subtask {name!r} restates the task of frame {above}")
        earlier = texts.setdefault(essence(subtask["task"]), name)
        if earlier != name:
            raise PlanError(f"subtask {name!r} repeats subtask {earlier!r}")
        _check_dependencies(subtask, ids)
    if cycle := _cycle(plan):
        raise PlanError(f"the subtasks {' -> '.join(cycle)} depend on one another in a circle")


def _check_count(plan: Sequence[Subtask], max_subtasks: int | None) -> None:
    if max_subtasks is not None and len(plan) > max_subtasks:
        raise PlanError(f"{len(plan)} subtasks, more than max_subtasks = {max_subtasks}")


def _check_dependencies(subtask: Subtask, ids: AbstractSet[str]) -> None:
    for needed in subtask["depends_on"]:
        if needed == subtask["id"]:
            raise PlanError(f"subtask {needed!r} depends on itself")
        if needed not in ids:
            raise PlanError(f"subtask {subtask['id']!r} depends on {needed!r}, which is no subtask of the plan")


def _cycle(plan: Sequence[Subtask]) -> list[str]:
    """Return ids that depend on one another in a circle, the first one again at the end; none in a good plan."""
    stuck = {plan[index]["id"]: plan[index] for index in set(range(len(plan))) - set(order(plan))}
    walked: list[str] = []
    current = next((subtask["id"] for subtask in plan if subtask["id"] in stuck), None)
    while current is not None:
        if current in walked:
            return [*walked[walked.index(current) :], current]
        walked.append(current)
        current = next(needed for needed in stuck[current]["depends_on"] if needed in stuck)
    return []


def order(plan: Sequence[Subtask]) -> list[int]:
    """Return the places of the subtasks so that each comes after those it depends on, else in plan order.

    It is a function of the plan alone. Subtasks on or behind a circle are left out.
    """
    if not any(subtask["depends_on"] for subtask in plan):
        return list(range(len(plan)))
    missing = {index: set(subtask["depends_on"]) for index, subtask in enumerate(plan)}
    placed: list[int] = []
    while (index := next((index for index, needed in missing.items() if not needed), None)) is not None:
        placed.append(index)
        del missing[index]
        for needed in missing.values():
            needed.discard(plan[index]["id"])
    return placed


def is_chain(plan: Sequence[Subtask]) -> bool:
    """Whether no two subtasks could ever be worked on at the same time."""
    places = order(plan)
    needs = {subtask["id"]: set(subtask["depends_on"]) for subtask in plan}
    for index in places:  # what they depend on by way of others
        for needed in set(needs[plan[index]["id"]]):
            needs[plan[index]["id"]] |= needs[needed]
    ids = [plan[index]["id"] for index in places]
    return all(earlier in needs[later] for earlier, later in pairwise(ids))


def _restated(subtask: Subtask, path: Sequence[Named]) -> str | None:
    """Return the id of the frame on ``path`` whose task ``subtask`` repeats."""
    return next((frame["id"] for frame in path if same_task(subtask["task"], frame["task"])), None)
