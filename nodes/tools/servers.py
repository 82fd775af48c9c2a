"""The configuration of MCP servers, checked before anything is started."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from frames.errors import UsageError

_KEYS = {
    "command": ("command", "args", "env", "cwd", "transport"),
    "url": ("url", "headers", "transport"),
}
_TRANSPORTS = {
    "command": {"stdio": "stdio"},
    "url": {
        "streamable_http": "streamable_http",
        "streamable-http": "streamable_http",
        "http": "streamable_http",
        "sse": "sse",
    },
}
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def check_servers(servers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the servers with their ``transport`` named and ``${VAR}`` in ``env`` and ``headers`` filled in.

    A server is {command, args, env, cwd}, which is started, or {url, headers}, which is called. What comes back may
    hold secrets: keep and show what was given instead.

    Raises:
        UsageError: names the server, the key and what is allowed.
    """
    return {name: _checked(name, server) for name, server in servers.items()}


def _checked(name: str, server: object) -> dict[str, Any]:
    if not name.strip():
        raise UsageError("an MCP server has no name: give it one")
    if not isinstance(server, Mapping):
        raise _refusal(name, "is no mapping", "give it a command or a url")
    given = cast("Mapping[str, Any]", server)
    kinds = [kind for kind in _KEYS if kind in given]
    if len(kinds) != 1:
        raise _refusal(name, f"has {'both' if kinds else 'neither'} command and url", "give it one of the two")
    kind = kinds[0]
    for key in given:
        if key not in _KEYS[kind]:
            raise _refusal(name, f"has the unknown key {key!r}", f"with {kind} go {', '.join(_KEYS[kind])}")
    checked = _started(name, given) if kind == "command" else _called(name, given)
    return {"transport": _transport(name, kind, given), **checked}


def _transport(name: str, kind: str, given: Mapping[str, Any]) -> str:
    known = _TRANSPORTS[kind]
    transport = given.get("transport", next(iter(known)))
    if not isinstance(transport, str) or transport not in known:
        raise _refusal(name, f"has transport {transport!r}", f"with {kind} goes {' or '.join(known)}")
    return known[transport]


def _started(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    command, cwd = given["command"], given.get("cwd")
    arguments: object = given.get("args") or []
    if not isinstance(command, str) or not command.strip():
        raise _refusal(name, "has a command that is no text", "name the program; its arguments go to args")
    if isinstance(arguments, str) or not isinstance(arguments, Sequence):
        raise _refusal(name, "has args that are no list", "write them as a list of texts")
    if not all(isinstance(argument, str) for argument in cast("Sequence[object]", arguments)):
        raise _refusal(name, "has args that are no texts", "quote them")
    if cwd is not None and not isinstance(cwd, str):
        raise _refusal(name, "has a cwd that is no text", "name a folder")
    checked = {"command": command, "args": list(cast("Sequence[str]", arguments)), "cwd": cwd}
    return {**checked, "env": _filled(name, "env", given.get("env"))}


def _called(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    url = given["url"]
    if not isinstance(url, str) or not re.match(r"https?://[^/]", url):
        raise _refusal(name, f"has the url {url!r}", "it begins with http:// or https://")
    return {"url": url, "headers": _filled(name, "headers", given.get("headers"))}


def _filled(name: str, key: str, texts: object) -> dict[str, str]:
    """Return ``texts`` with the environment's values in place of ``${VAR}``."""
    if texts is None:
        return {}
    if not isinstance(texts, Mapping):
        raise _refusal(name, f"has {key} that are no mapping", "write names with texts")

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise _refusal(name, f"uses ${{{found[1]}}} in {key}, which is not set", f"set {found[1]}")
        return os.environ[found[1]]

    filled: dict[str, str] = {}
    for each, text in cast("Mapping[Any, Any]", texts).items():
        if not isinstance(each, str) or not isinstance(text, str):
            raise _refusal(name, f"has {key} where {each!r} is no text", "quote it")
        filled[each] = _VARIABLE.sub(value, text)
    return filled


def _refusal(name: str, fault: str, remedy: str) -> UsageError:
    return UsageError(f"MCP server {name!r} {fault}: {remedy}")
