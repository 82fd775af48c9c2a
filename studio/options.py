"""The settings of a run: an option beats --config, which beats the environment, which beats the default."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from frames.errors import UsageError
from frames.text import one_line
from nodes.context import Context
from nodes.models.resolve import default_name

LOCAL_DEFAULTS = {
    "classic": {"max_depth": 2, "max_subtasks": 3},
    "roma": {
        "max_depth": 1,
        "max_subtasks": 3,
        "max_steps": 1,
        "verifier": "accept",
        "revise": False,
        "parallel": 1,
        "window": 8_000,
        "answer_tokens": 500,
    },
    "adaptive": {
        "max_depth": 1,
        "max_subtasks": 3,
        "max_steps": 1,
        "investigate_steps": 1,
        "max_files": 3,
        "verifier": "accept",
        "revise": False,
        "parallel": 1,
        "window": 6_000,
        "answer_tokens": 500,
    },
}
"""Under the embedded model: it judges badly, splitting rarely improves its answers, and each call takes a while."""

NOT_SETTINGS = {"db"}
"""Keys of the file and the environment that are no setting of the run itself."""


class Chosen(NamedTuple):
    """The settings of a run, and the database it lives in (``None``: the default one)."""

    context: Context
    db: str | None


def choose(
    explicit: Mapping[str, Any], pairs: tuple[str, ...] = (), config: Path | None = None, *, needs_model: bool = True
) -> Chosen:
    """Return the settings that the four sources give together.

    Args:
        explicit: the options that were given; ``None`` is one that was not.
        pairs: the ``key=value`` of each ``-c``.
        config: a YAML, JSON or TOML file.
        needs_model: whether a model is looked for where none is named.

    Raises:
        UsageError: a bad value, key or file; the message names it.
    """
    given = {key: value for key, value in explicit.items() if value not in (None, {}, ())}
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    values = _environment() | (_file(config) if config else {}) | _pairs(pairs)
    named = values.get("role_models") or {}
    if not isinstance(named, dict):
        raise UsageError(f"role_models must be role: provider:model, not {named!r}")
    values["role_models"] = {**named, **given.pop("role_models", {})}
    values |= given
    db = _address(values.pop("db", None))
    values["profile"] = values.get("profile") or "roma"
    if needs_model:
        values["model"] = values.get("model") or _default_model(needed=not values["role_models"])
    if values.get("model") == "local":
        values = LOCAL_DEFAULTS.get(str(values.get("profile")), {}) | values
    return Chosen(Context.checked(**values), db)


def changed(explicit: Mapping[str, Any], pairs: tuple[str, ...] = (), config: Path | None = None) -> dict[str, Any]:
    """Return the settings that are given for the rest of a run, and those alone.

    Raises:
        UsageError: a bad key or file, or another profile, which would be another run.
    """
    values = (_file(config) if config else {}) | _pairs(pairs)
    values |= {key: value for key, value in explicit.items() if value not in (None, {}, ())}
    for name in ("profile", "db"):
        if values.pop(name, None) is not None:
            raise UsageError(f"{name} cannot change while a run goes on: start another with `cactus solve`")
    return values


def database(given: str | None, *, existing: bool = False) -> str | None:
    """Return the database that is meant where no run is started: the option, else ``$CACTUS_DB``.

    Raises:
        UsageError: it is no address, or it was given, must exist and does not.
    """
    address = _address(given or os.environ.get("CACTUS_DB") or None)
    if existing and given and address and "://" not in address and not Path(address).exists():
        raise UsageError(f"there is no database {address}: name another with --db")
    return address


def _address(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value.strip() or value.startswith(":memory:")):
        raise UsageError(f"db must be a file or postgresql://…, not {value!r}")
    return value


def _default_model(*, needed: bool) -> str | None:
    try:
        return default_name()
    except UsageError:
        if needed:
            raise
        return None


def _environment() -> dict[str, Any]:
    known = {f"CACTUS_{name.upper()}": name for name in {*Context.model_fields, *NOT_SETTINGS} - {"role_models"}}
    return {name: os.environ[variable] for variable, name in known.items() if os.environ.get(variable)}


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read --config {path}: {error}") from error
    except (yaml.YAMLError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--config {path}: {one_line(str(error), 200)}") from error
    if not isinstance(values or {}, dict):
        raise UsageError(f"--config {path}: must hold settings as key: value")
    return {str(key).replace("-", "_"): value for key, value in (values or {}).items()}


def _pairs(pairs: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"-c {pair}: must be key=value, such as -c atomizer=depth:2")
        outer, dot, inner = key.strip().partition(".")
        _put(values, outer.replace("-", "_") + dot + inner, _value(text))
    return values


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    outer, dot, inner = key.partition(".")
    if dot:
        mapping = values.setdefault(outer, {})
        if not isinstance(mapping, dict):
            raise UsageError(f"-c {key}: {outer} has a value of its own already")
        mapping[inner] = value
    else:
        values[key] = value


def _value(text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, dict) else value
