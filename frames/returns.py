"""The form that a launch asks of an answer: the name of a simple type, or a JSON schema, of which a part is known."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "None": "null",
    "NoneType": "null",
}
TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
"""The types of JSON, by the names of JSON schema."""

_KEYWORDS = {
    *("type", "enum", "const", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items"),
    *("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"),
    *("title", "description", "default", "examples", "format", "$schema"),  # these say something, and ask for nothing
}
_DEEPEST = 20


def schema_of(returns: Any) -> dict[str, Any] | None:
    """Return the JSON schema that ``returns`` means: ``None``, a type's name (``list[str]``), or a schema.

    Raises:
        ValueError: it means none, or asks for something that is not checked here; the message says what.
    """
    if returns is None:
        return None
    if isinstance(returns, str):
        return _named(returns.strip())
    if isinstance(returns, Mapping):
        schema = dict(cast("Mapping[str, Any]", returns))
        _check(schema, 0)
        return schema
    raise ValueError(f"returns must be a type's name or a JSON schema, not {type(returns).__name__}")


def misfit(value: Any, schema: Mapping[str, Any] | None, where: str = "the answer") -> str | None:
    """Return what about a JSON value does not fit ``schema``; ``None`` where it fits."""
    if not schema:
        return None
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} must be {schema['const']!r}"
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        return f"{where} must be one of {schema['enum']!r}"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            faults = [misfit(value, each, where) for each in schema[word]]
            if all(faults):
                return str(faults[0]) if len(faults) == 1 else f"{where} fits none of its {len(faults)} forms"
    named = schema.get("type")
    types = [named] if isinstance(named, str) else cast("list[str]", named or [])
    if types and not any(_is(value, each) for each in types):
        return f"{where} must be {' or '.join(types)}, not {_type_of(value)}"
    return _out_of_range(value, schema, where) or _parts(value, schema, where)


def _named(name: str) -> dict[str, Any]:
    outer, bracket, inner = name.partition("[")
    type_ = _NAMES.get(outer, outer)
    if type_ not in TYPES or (bracket and (type_ not in ("array", "object") or not inner.endswith("]"))):
        known = ", ".join(dict.fromkeys(_NAMES))
        raise ValueError(f"returns: {name[:60]!r} is no type's name; there are {known}, list[str] and the like")
    if bracket and type_ == "array":
        return {"type": type_, "items": _named(inner[:-1].strip())}
    return {"type": type_}


def _check(schema: Any, depth: int) -> None:
    """Check that a schema asks for nothing that is not checked.

    Raises:
        ValueError: it does; the message says what.
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        raise ValueError("returns: a schema must be an object, at most 20 deep")
    asked = cast("Mapping[str, Any]", schema)
    if unknown := sorted(set(asked) - _KEYWORDS):
        raise ValueError(f"returns: {', '.join(unknown)[:100]} of JSON schema is not checked here; leave it out")
    named = asked.get("type")
    types = cast("list[Any]", named if isinstance(named, list) else [] if named is None else [named])
    if wrong := [each for each in types if each not in TYPES]:
        raise ValueError(f"returns: there is no type {wrong[0]!r}; types are {', '.join(TYPES)}")
    for word, form in (("enum", list), ("required", list), ("properties", Mapping), ("anyOf", list), ("oneOf", list)):
        if word in asked and not isinstance(asked[word], form):
            raise ValueError(f"returns: {word} must be {'a list' if form is list else 'an object'}")
    for word in ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"):
        if word in asked and not _is(asked[word], "number"):
            raise ValueError(f"returns: {word} must be a number")
    inner = [*asked.get("properties", {}).values(), *asked.get("anyOf", ()), *asked.get("oneOf", ())]
    inner += [asked[word] for word in ("items", "additionalProperties") if not isinstance(asked.get(word, True), bool)]
    for each in inner:
        _check(each, depth + 1)


def _parts(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    """Return what does not fit within a list or an object."""
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        entries = cast("Sequence[Any]", value)
        faults = (misfit(each, schema["items"], f"{where}[{index}]") for index, each in enumerate(entries))
        return next((fault for fault in faults if fault), None)
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    if missing := [name for name in schema.get("required", ()) if name not in fields]:
        return f"{where} lacks {missing[0]!r}"
    known, further = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, each in fields.items():
        if name not in known and further is False:
            return f"{where} has {name!r}, which is not asked for"
        form = known.get(name, further)
        if isinstance(form, Mapping) and (fault := misfit(each, cast("Mapping[str, Any]", form), f"{where}.{name}")):
            return fault
    return None


def _out_of_range(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    sizes: list[tuple[str, Any, str]] = []
    if _is(value, "number"):
        sizes = [("minimum", value, ""), ("maximum", value, "")]
    elif isinstance(value, list):
        count = len(cast("list[Any]", value))
        sizes = [("minItems", count, " entries"), ("maxItems", count, " entries")]
    elif isinstance(value, str):
        sizes = [("minLength", len(value), " characters"), ("maxLength", len(value), " characters")]
    for word, size, unit in sizes:
        if word in schema and (size < schema[word] if word.startswith("min") else size > schema[word]):
            return f"{where} must be {'at least' if word.startswith('min') else 'at most'} {schema[word]}{unit}"
    return None


def _is(value: Any, type_: str) -> bool:
    match type_:
        case "integer":
            return not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return _type_of(value) == type_


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _type_of(value: Any) -> str:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(cast("type[Any]", type(value)), "null")


def _same(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same; to Python, True is 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)
