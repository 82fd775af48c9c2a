"""From dotted names to LangChain tools."""

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from langchain_core.tools import BaseTool, StructuredTool

from frames.errors import UsageError
from frames.text import one_line
from nodes.tools.run import ToolOutcome, run_tool

__all__ = ["ToolOutcome", "load_tools", "run_tool"]

T = TypeVar("T")

_WAYS = "name a LangChain tool, a list of them, a class or factory of one, or a function with a docstring"


def load_tools(names: Sequence[str]) -> list[BaseTool]:
    """Return the tools that ``names`` mean: ``package.module:attribute`` or ``package.module.attribute``.

    An attribute is a tool, a list or tuple of tools, a tool's class, a factory (a function without required
    arguments whose return annotation is a tool or a list of tools), or a plain function with a docstring. Modules
    in the current folder are found too. Importing them runs them; it may block.

    Raises:
        UsageError: a module or attribute that is not there or fails, no tool, or two tools of one name.
    """
    if names and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # the console script does not have it; at the end, so that it hides nothing
    tools: list[BaseTool] = []
    origin: dict[str, str] = {}
    for name in names:
        for tool in _tools(name, _found(name)):
            if tool.name in origin:
                raise UsageError(
                    f"tools {origin[tool.name]} and {name} are both called {tool.name!r}: leave one out, or rename it"
                )
            origin[tool.name] = name
            tools.append(tool)
    return tools


def as_tools(given: Sequence[Any]) -> list[BaseTool]:
    """Return the tools that are given as objects, functions, or dotted names.

    Raises:
        UsageError: one is none of these.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):  # type: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"tools must be a list, not {type(given).__name__}")
    tools: list[BaseTool] = []
    for each in given:
        name = getattr(each, "__name__", None) or getattr(each, "name", None) or one_line(repr(each), 60)
        tools += load_tools([each]) if isinstance(each, str) else _tools(str(name), each)
    return tools


def _found(name: str) -> Any:
    """Return the object that ``name`` means."""
    module_name, colon, attributes = name.partition(":")
    if colon:
        found: Any = _module(name, module_name)
    else:
        found, attributes = _longest(name)
    if not attributes:
        raise UsageError(f"tool {name!r} names no attribute: write {module_name}:NAME ({_WAYS})")
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise UsageError(f"tool {name!r}: there is no {attribute!r} in it{_alike(attribute, found)}")
        found = getattr(found, attribute)
    return found


def _longest(name: str) -> tuple[ModuleType, str]:
    """Return the module that ``package.module.attribute`` begins with, and the rest."""
    parts = name.split(".")
    count, module = 1, _module(name, parts[0])
    while count < len(parts) - 1 and _exists(".".join(parts[: count + 1])):
        count += 1
        module = _module(name, ".".join(parts[:count]))
    return module, ".".join(parts[count:])


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False  # its parent is missing or is no package


def _module(name: str, module: str) -> ModuleType:
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"tool {name!r} is not a dotted name such as package.module:attribute")
    return _own_code(name, f"import {module}", lambda: importlib.import_module(module))


def _tools(name: str, found: Any) -> list[BaseTool]:
    if isinstance(found, BaseTool):
        return [found]
    if isinstance(found, list | tuple):
        return [tool for each in cast("Sequence[Any]", found) for tool in _tools(name, each)]
    if inspect.isclass(found) and issubclass(found, BaseTool):
        return [
            _own_code(
                name,
                "make it without arguments (name a function that returns it)",
                cast("Callable[[], BaseTool]", found),
            )
        ]
    if inspect.isfunction(found) or inspect.ismethod(found):
        return _made(name, found) if _is_factory(found) else [_from_function(name, found)]
    raise UsageError(f"tool {name!r} is a {type(found).__name__}: {_WAYS}")


def _made(name: str, factory: Callable[[], Any]) -> list[BaseTool]:
    made = _own_code(name, "call it without arguments", factory)
    if not isinstance(made, BaseTool | list | tuple):
        if inspect.iscoroutine(made):
            made.close()
        raise UsageError(f"tool {name!r} is a factory that gave a {type(made).__name__}: let it return a tool")
    return _tools(name, made)


def _is_factory(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` makes tools; a plain one must not be called before a model asks for it."""
    try:
        returned = get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return False  # annotations of names that are not at hand at run time
    kinds = [returned, *get_args(returned)] if get_origin(returned) else [returned]
    return any(inspect.isclass(kind) and issubclass(kind, BaseTool) for kind in kinds)


def _from_function(name: str, function: Callable[..., Any]) -> BaseTool:
    if not inspect.getdoc(function):
        raise UsageError(f"tool {name!r} has no docstring: write one, it tells the model what the tool is for")
    given: dict[str, Any] = {"coroutine" if inspect.iscoroutinefunction(function) else "func": function}
    make = cast("Callable[..., BaseTool]", StructuredTool.from_function)
    return _own_code(
        name, "read its signature", lambda: make(**given, parse_docstring=True, error_on_invalid_docstring=False)
    )


def _own_code(name: str, doing: str, work: Callable[[], T]) -> T:
    """Return what ``work`` gives, which runs the user's code.

    Raises:
        UsageError: it raised anything.
    """
    try:
        return work()
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        remedy = "correct the name, install it, or start in the folder it lies in"
        raise UsageError(f"tool {name!r}: there is no module {missing!r}: {remedy}") from error
    except Exception as error:  # a user's module may raise anything while it is imported
        said = one_line(f"{type(error).__name__}: {error}", 300)
        raise UsageError(f"tool {name!r}: could not {doing}: {said}") from error


def _alike(attribute: str, found: Any) -> str:
    public = [each for each in dir(found) if not each.startswith("_")]
    close = difflib.get_close_matches(attribute, public, 3)
    return f"; did you mean {' or '.join(close)}?" if close else f"; {_WAYS}"
