"""A script of the scripted model: its rules, how they answer a request, and how a file of them is read."""

import difflib
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import yaml

from frames.errors import CallError, UsageError
from frames.text import one_line
from nodes.models.request import Request

ROLES = ("atomize", "investigate", "decompose", "solve", "aggregate", "verify")
ERRORS = ("rate_limit", "timeout", "connection", "server", "refusal", "length", "hang")
LONGEST_LATENCY = 86_400.0
"""Seconds; a latency that is drawn longer is cut to this."""

_SCRIPT_KEYS = ("latency", "log", "rules", "default")
_CONDITIONS = ("role", "frame", "depth", "attempt", "task", "contains")
_RULE_KEYS = (*_CONDITIONS, "reply", "json", "error", "retry_after", "times", "latency")
_LATENCY_KEYS = ("median", "sigma", "seed")
_TEXT_KEYS = {"log", "default", "role", "frame", "task", "contains", "reply", "error"}

_PLACEHOLDER = re.compile(r"\{(task|frame|role|depth|attempt)\}")
_SILENT_TEXT = {"atomize": "no", "investigate": "nothing found", "decompose": "", "verify": "ACCEPT"}
_SILENT_JSON = {
    "atomize": '{"atomic": false}',
    "investigate": '{"files": [], "observations": []}',
    "decompose": '{"subtasks": []}',
    "verify": '{"accepted": true, "feedback": ""}',
}


@dataclass(frozen=True)
class Latency:
    """How long a reply takes: log-normal around ``median`` seconds; exactly that where ``sigma`` is 0."""

    median: float
    sigma: float = 0.0
    seed: int = 0

    def seconds(self, request: Request) -> float:
        """Return the seconds that ``request`` takes; the same for the same frame, role and attempt."""
        if not self.sigma:
            return min(self.median, LONGEST_LATENCY)
        key = f"{self.seed}|{request.frame}|{request.role}|{request.attempt}"
        drawn = random.Random(key).gauss(0.0, 1.0)  # noqa: S311
        return min(self.median * math.exp(min(self.sigma * drawn, 700.0)), LONGEST_LATENCY)


@dataclass(frozen=True)
class Rule:
    """One rule: conditions (``None`` always holds), and the reply or the error. ``json`` is JSON text."""

    role: str | None = None
    frame: re.Pattern[str] | None = None
    depth: int | None = None
    attempt: int | None = None
    task: re.Pattern[str] | None = None
    contains: re.Pattern[str] | None = None
    reply: str | None = None
    json: str | None = None
    error: str | None = None
    retry_after: float | None = None
    times: int | None = None
    latency: Latency | None = None

    def holds(self, request: Request, text: str) -> bool:
        """Whether all conditions hold for ``request``, whose messages read ``text``."""
        return (
            self.role in (None, request.role)
            and self.depth in (None, request.depth)
            and self.attempt in (None, request.attempt)
            and (self.frame is None or self.frame.fullmatch(request.frame) is not None)
            and (self.task is None or self.task.search(request.task) is not None)
            and (self.contains is None or self.contains.search(text) is not None)
        )

    def text(self, request: Request, structured: bool) -> str | None:
        """Return what the rule says to ``request``, JSON text where ``structured``; ``None`` for nothing."""
        if self.json is not None and (structured or self.reply is None):
            return fill_json(self.json, request)
        if self.reply is None:
            return None
        return _reply_as_json(self.reply, request) if structured else fill(self.reply, request)


@dataclass(frozen=True)
class Script:
    """A checked script. ``name`` is what messages call it; ``log`` is an absolute path."""

    name: str
    rules: tuple[Rule, ...] = ()
    default: str | None = None
    latency: Latency = Latency(0.0)
    log: Path | None = None

    def unruled(self, request: Request, structured: bool) -> str:
        """Return what is said where no rule answers.

        Raises:
            CallError: the role has no silent reply and the script no ``default``.
        """
        silent = (_SILENT_JSON if structured else _SILENT_TEXT).get(request.role)
        if silent is not None:
            return silent
        if self.default is not None:
            return _reply_as_json(self.default, request) if structured else fill(self.default, request)
        raise CallError(
            f"{self.name}: no rule answers role {request.role!r}, frame {request.frame!r}, "
            f'task "{one_line(request.task, 200)}"; add a rule for it or a `default`'
        )


def fill(template: str, request: Request) -> str:
    """Return ``template`` with ``{task}`` ``{frame}`` ``{role}`` ``{depth}`` ``{attempt}`` filled in.

    Other braces stay as they are, those within what is filled in too.
    """
    return _PLACEHOLDER.sub(lambda match: str(getattr(request, match[1])), template)


def fill_json(text: str, request: Request) -> str:
    """Return JSON ``text`` with the placeholders within its texts filled in.

    Raises:
        ValueError: ``text`` is no JSON.
    """
    return json.dumps(_filled(json.loads(text), request), ensure_ascii=False)


def _filled(value: Any, request: Request) -> Any:
    if isinstance(value, str):
        return fill(value, request)
    if isinstance(value, list):
        return [_filled(item, request) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _filled(item, request) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _reply_as_json(reply: str, request: Request) -> str:
    try:
        return fill_json(reply, request)
    except ValueError:  # a placeholder may stand for a number, and whoever reads it says what is wrong
        return fill(reply, request)


# Reading a file


class _Loader(yaml.SafeLoader):
    """YAML that reads ``1e-3`` as a number and leaves dates as text, for they are no JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def read_script(path: Path) -> Script:
    """Return the script in a YAML or JSON file.

    Raises:
        UsageError: it cannot be read, or is no script; names the file and the line, or the rule and the key.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except ValueError as error:  # a zero byte in the path
        raise UsageError(f"{str(path)!r}: cannot be read: {error}; check the path") from error
    return check_script(_parsed(text, path), path.parent, str(path))


def _parsed(text: str, path: Path) -> Any:
    try:
        return json.loads(text) if path.suffix.lower() == ".json" else _from_yaml(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}: line {error.lineno}: not JSON: {one_line(error.msg, 200)}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: line {_line(error, text)}: not YAML: {_problem(error)}") from error
    except ValueError as error:
        raise UsageError(f"{path}: a value cannot be read: {one_line(str(error), 200)}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply to be read") from error


def _line(error: yaml.YAMLError, text: str) -> int:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return mark.line + 1 if mark else 1
    return text.count("\n", 0, getattr(error, "position", 0)) + 1


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return one_line(str(problem), 200)


def _from_yaml(text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)  # JSON is not quite YAML: tabs, and escapes beyond U+FFFF
        except ValueError:
            pass
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _construct(loader, node, _construct_rules)
    finally:
        loader.dispose()


def _construct(loader: Any, node: yaml.Node, rules: Callable[[Any, yaml.Node], Any] | None) -> Any:
    """Return what ``node`` holds, with ``yes`` and ``42`` left as text where the key is one of a text."""
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node, deep=True)
    result: dict[str, Any] = {}
    for key, value in _flat(loader, node):
        if key in _TEXT_KEYS and isinstance(value, yaml.ScalarNode):
            result[key] = value.value
        elif key == "rules" and rules:
            result[key] = rules(loader, value)
        else:
            result[key] = loader.construct_object(value, deep=True)
    return result


def _flat(loader: Any, node: yaml.MappingNode) -> list[tuple[str, yaml.Node]]:
    """Return the keys and values of ``node``, those that it merges (``<<``) first."""
    _refuse_doubles(node)
    copy = yaml.MappingNode(node.tag, list(node.value), node.start_mark, node.end_mark)
    loader.flatten_mapping(copy)
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", copy.value)
    return [(str(key.value) if isinstance(key, yaml.ScalarNode) else "(no text)", value) for key, value in pairs]


def _construct_rules(loader: Any, node: yaml.Node) -> Any:
    if not isinstance(node, yaml.SequenceNode):
        return loader.construct_object(node, deep=True)
    return [_construct(loader, item, None) for item in cast("list[yaml.Node]", node.value)]


def _refuse_doubles(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(str(key.value))


# Checking what was read


@dataclass(frozen=True)
class _Place:
    """Where in a script a value stands: for messages, and the values under it by key."""

    where: str
    values: Mapping[str, Any]

    def wrong(self, key: str, allowed: str) -> NoReturn:
        shown = one_line(repr(self.values[key]), 80)
        raise UsageError(f"{self.where}{key}: {allowed}, not {shown}")

    def only(self, allowed: Sequence[str]) -> None:
        for key in self.values:
            if key not in allowed:
                close = difflib.get_close_matches(key, allowed, n=1)
                meant = f", did you mean {close[0]!r}?" if close else ";"
                raise UsageError(f"{self.where}{one_line(key)}: unknown key{meant} allowed are {', '.join(allowed)}")

    def text(self, key: str, hint: str = "") -> str | None:
        value = self.values.get(key)
        if isinstance(value, bool | int | float):  # JSON's true and 42
            return json.dumps(value)
        if key in self.values and not isinstance(value, str):
            self.wrong(key, f"must be a text{hint}")
        return value

    def word(self, key: str, allowed: Sequence[str]) -> str | None:
        value = self.text(key)
        if value is not None and value not in allowed:
            close = difflib.get_close_matches(value, allowed, n=1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            self.wrong(key, f"must be one of {', '.join(allowed)}{meant}")
        return value

    def whole(self, key: str, least: int | None = None) -> int | None:
        value = self.values.get(key)
        if key in self.values and not _is_whole(value, least):
            self.wrong(key, "must be a whole number" + ("" if least is None else f" of at least {least}"))
        return value

    def number(self, key: str, unit: str) -> float | None:
        value = self.values.get(key)
        if key in self.values and not _is_number(value):
            self.wrong(key, f"must be a number{unit}, 0 or more")
        return value

    def pattern(self, key: str) -> re.Pattern[str] | None:
        value = self.text(key)
        try:
            return None if value is None else re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            self.wrong(key, f"must be a regular expression ({one_line(str(error), 100)})")


def _is_whole(value: Any, least: int | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_script(data: Any, folder: Path, name: str) -> Script:
    """Return the script that ``data`` describes; ``log`` is relative to ``folder``.

    Raises:
        UsageError: it is no script; names ``name``, the rule's number from 1, the key and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"{name}: must be a mapping with the keys {', '.join(_SCRIPT_KEYS)}")
    place = _Place(f"{name}: ", _keyed(cast("Mapping[Any, Any]", data)))
    place.only(_SCRIPT_KEYS)
    log = place.text("log")
    if log == "":
        place.wrong("log", "must be a file's path")
    return Script(
        name=name,
        rules=_rules(place, name),
        default=place.text("default"),
        latency=_latency(place) or Latency(0.0),
        log=(folder / log).absolute() if log else None,
    )


def _keyed(data: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in data.items()}


def _rules(place: _Place, name: str) -> tuple[Rule, ...]:
    rules = place.values.get("rules", [])
    if not isinstance(rules, list | tuple):
        place.wrong("rules", "must be a list of rules")
    return tuple(_rule(rule, f"{name}: rule {n}") for n, rule in enumerate(cast("Sequence[Any]", rules), start=1))


def _rule(data: Any, where: str) -> Rule:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where}: must be a mapping with some of the keys {', '.join(_RULE_KEYS)}")
    place = _Place(f"{where}: ", _keyed(cast("Mapping[Any, Any]", data)))
    place.only(_RULE_KEYS)
    rule = Rule(
        role=place.word("role", ROLES),
        frame=place.pattern("frame"),
        depth=place.whole("depth", 0),
        attempt=place.whole("attempt", 1),
        task=place.pattern("task"),
        contains=place.pattern("contains"),
        reply=place.text("reply", " (a structured reply is given as json)"),
        json=_json(place),
        error=place.word("error", ERRORS),
        retry_after=place.number("retry_after", " of seconds"),
        times=place.whole("times", 0),
        latency=_latency(place),
    )
    _refuse_odd(rule, where)
    return rule


def _refuse_odd(rule: Rule, where: str) -> None:
    if rule.reply is None and rule.json is None and rule.error is None:
        raise UsageError(f"{where}: reply: missing; a rule gives a reply, a json or an error")
    if rule.retry_after is not None and rule.error != "rate_limit":
        raise UsageError(f"{where}: retry_after: allowed only beside error: rate_limit")


def _json(place: _Place) -> str | None:
    if "json" not in place.values:
        return None
    try:
        return json.dumps(place.values["json"], ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        place.wrong("json", "must be what JSON can hold")


def _latency(place: _Place) -> Latency | None:
    value = place.values.get("latency")
    if not isinstance(value, Mapping):
        seconds = place.number("latency", " of seconds (or a mapping of median, sigma and seed)")
        return None if seconds is None else Latency(seconds)
    inner = _Place(f"{place.where}latency: ", _keyed(cast("Mapping[Any, Any]", value)))
    inner.only(_LATENCY_KEYS)
    median = inner.number("median", " of seconds")
    if median is None:
        raise UsageError(f"{inner.where}median: missing; it is a number of seconds")
    return Latency(median, inner.number("sigma", "") or 0.0, inner.whole("seed") or 0)
