"""The code in a model's reply, in whichever form it came, and what is wrong with it before it is run."""

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from nodes.structured import objects, without_reasoning

LAUNCH = "launch_subagent"
FINISH = "finish"

MOST_CODE = 50_000
"""Characters of a block that is run."""

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w.+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_TAGGED = re.compile(r"<(code|execute|python|tool_code)>\s*(.*?)(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_PYTHON = {"", "python", "py", "python3", "ipython", "repl", "tool_code", "code"}
_TOP_LEVEL_AWAIT = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_CODE_KEYS = ("code", "python", "source", "script")


def code_of(reply: str, names: Collection[str]) -> str | None:
    """Return the code in a reply; ``None`` where it has none.

    Blocks of Python, fenced or tagged, are one program in their order. A call in JSON, of a Python tool or of one of
    ``names`` (what the code can call), is one too, and so is a reply that is nothing but Python.
    """
    text = without_reasoning(reply)
    fenced = [match for match in _FENCE.finditer(text) if match[2].lower() in _PYTHON]
    if fenced:
        return "\n".join(_plain_lines(match[3]).strip("\n") for match in fenced).strip("\n") or None
    if tagged := _TAGGED.findall(text):
        return "\n".join(code.strip("\n") for _, code in tagged) or None
    if called := "\n".join(_from_calls(text, names)):
        return called
    return text if _is_code(text, names) else None


def fault_of(code: str, names: Collection[str]) -> str | None:
    """Return why code is not run: it is no Python, or calls one of ``names``, all asynchronous, and does not await it.

    A call may be kept, in a list or under a name, where the block awaits what is kept.
    """
    if len(code) > MOST_CODE:
        return f"the block has {len(code):,} characters, more than {MOST_CODE:,}: do less in one block"
    try:
        tree = compile(code, "cell", "exec", _TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        return f"SyntaxError: {error.msg} (line {error.lineno}: {(error.text or '').strip()[:200]})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"SyntaxError: the block cannot be read: {error}"
    return _not_awaited(cast("ast.Module", tree), names)


def _plain_lines(code: str) -> str:
    """Return a block without the prompts of a Python prompt and the magic lines of a notebook."""
    lines = code.split("\n")
    if any(line.startswith(">>> ") for line in lines):
        lines = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def _from_calls(text: str, names: Collection[str]) -> Iterator[str]:
    """Yield the code that calls in JSON mean."""
    for found in objects(text):
        inner: Any = found.get("function")
        call = cast("Mapping[str, Any]", inner) if isinstance(inner, dict) else found
        name = call.get("name") or call.get("tool") or call.get("action")
        arguments = next((call[key] for key in ("arguments", "args", "parameters", "input") if key in call), call)
        if isinstance(arguments, str):
            arguments = next(objects(arguments), {"code": arguments})
        if not isinstance(arguments, dict):
            continue
        given = cast("dict[str, Any]", arguments)
        code = next((given[key] for key in _CODE_KEYS if isinstance(given.get(key), str)), None)
        if code is not None:
            yield code
        elif name in names and call is not given:
            yield _called(str(name), given)


def _called(name: str, arguments: Mapping[str, Any]) -> str:
    given = f"json.loads({json.dumps(json.dumps(arguments))})"
    if name == FINISH:
        return f"import json\nfinish(*{given}.values())"
    return f"import json\nprint(await {name}(**{given}))"


def _is_code(text: str, names: Collection[str]) -> bool:
    """Whether a text is Python that does something: prose of one word is Python as well."""
    if len(text) > MOST_CODE:
        return False
    try:
        tree: Any = compile(text, "cell", "exec", _TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    known = {*names, FINISH, "print"}
    called = (node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return any(name in known for name in called)


def _not_awaited(tree: ast.Module, names: Collection[str]) -> str | None:
    """Return what is said of a call that is not awaited; ``None`` where there is none."""
    parents = {inner: node for node in ast.walk(tree) for inner in ast.iter_child_nodes(node)}
    awaits = any(isinstance(node, ast.Await) for node in ast.walk(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names):
            continue
        if not _is_awaited(node, parents, awaits=awaits):
            line = node.lineno
            return (
                f"line {line}: {node.func.id}(…) is not awaited, so that nothing was run. Write "
                f"`await {node.func.id}(…)`, or `await asyncio.gather(…)` for several at once"
            )
    return None


def _is_awaited(call: ast.AST, parents: Mapping[ast.AST, ast.AST], *, awaits: bool) -> bool:
    """Whether a call is awaited, joined, handed on to be awaited, or kept in a block that awaits something."""
    node = call
    while parent := parents.get(node):
        match parent:
            case ast.Await() | ast.Return() | ast.Yield() | ast.Lambda():
                return True
            case ast.Call() if node is not parent.func:
                return _joins(parent) or (
                    isinstance(parent.func, ast.Attribute) and parent.func.attr in ("append", "add")
                )
            case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.Starred() | ast.IfExp() | ast.NamedExpr():
                node = parent
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                node = parent
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return awaits
            case ast.keyword():
                node = parent
            case _:
                return False
    return False


def _joins(call: ast.Call) -> bool:
    """Whether a call takes others to await them: ``asyncio.gather``, or a function of the code's own."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name not in (
        "print",
        "str",
        "len",
        "repr",
        "int",
        "float",
        "json",
        "dumps",
        "sum",
        "max",
        "min",
        "sorted",
        "bool",
    )
