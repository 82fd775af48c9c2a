"""Tools are found by name; what they give is text, and their failures are told as failures."""

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException, tool
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from pydantic import BaseModel

from frames.errors import UsageError
from nodes.tools.load import ToolOutcome, load_tools, run_tool

MODULE = '''
import os
from langchain_core.tools import BaseTool, StructuredTool, tool

called = []

@tool
def given(query: str) -> str:
    """Look it up."""
    return "found " + query

def plain(count: int) -> int:
    """Double a number.

    Args:
        count: What to double.
    """
    return 2 * count

async def waiting(name: str) -> str:
    """Greet."""
    return "hello " + name

def now() -> str:
    """Tell the time."""
    called.append("now")
    return "noon"

def mute(x: str):
    return x

def make() -> BaseTool:
    return StructuredTool.from_function(plain, name="made")

def make_more(count: int = 2) -> list[BaseTool]:
    return [StructuredTool.from_function(plain, name=f"made{number}") for number in range(count)]

def make_wrongly() -> BaseTool:
    return 3

async def make_later() -> BaseTool:
    return given

def make_with(key) -> BaseTool:
    return given

class Ready(BaseTool):
    name: str = "ready"
    description: str = "Is ready."
    def _run(self, x: str) -> str:
        return x

class Needy(Ready):
    key: str

class Box:
    tool = given
    def method(self, x: str) -> str:
        """A method."""
        return x

box = Box()
several = [given, plain, (waiting,)]
number = 3
twice = [given, given]
'''


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """A folder of modules, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "ours_pkg" / "sub").mkdir(parents=True)
    for name, text in {
        "ours.py": MODULE,
        "ours_pkg/__init__.py": "",
        "ours_pkg/sub/__init__.py": "",
        "ours_pkg/sub/deep.py": MODULE,
        "ours_broken.py": "import os\nos.environ['NOT_SET_ANYWHERE']",
        "ours_syntax.py": "def (",
        "ours_needs.py": "import a_package_that_is_missing",
    }.items():
        (tmp_path / name).write_text(text)
    yield
    for name in [name for name in sys.modules if name.split(".")[0].startswith("ours")]:
        del sys.modules[name]


def names(*wanted: str) -> list[str]:
    return [each.name for each in load_tools(wanted)]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ours:given", ["given"]),
        ("ours.given", ["given"]),
        ("ours:plain", ["plain"]),
        ("ours:waiting", ["waiting"]),
        ("ours:now", ["now"]),
        ("ours:make", ["made"]),
        ("ours:make_more", ["made0", "made1"]),
        ("ours:Ready", ["ready"]),
        ("ours:Box.tool", ["given"]),
        ("ours.Box.tool", ["given"]),
        ("ours:box.method", ["method"]),
        ("ours:several", ["given", "plain", "waiting"]),
        ("ours_pkg.sub.deep:given", ["given"]),
        ("ours_pkg.sub.deep.given", ["given"]),
        ("ours_pkg.sub.deep.Box.tool", ["given"]),
    ],
)
def test_what_a_name_may_mean(name, found):
    assert names(name) == found


def test_several_names_in_order():
    assert names("ours:now", "ours:given") == ["now", "given"]
    assert names() == []


def test_a_function_is_not_called_before_it_is_asked_for():
    load_tools(["ours:now"])
    assert sys.modules["ours"].called == []


def test_a_docstring_tells_the_model_about_the_arguments():
    [plain] = load_tools(["ours:plain"])
    assert plain.description == "Double a number."
    assert plain.args["count"]["description"] == "What to double."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ourz:given", r"tool 'ourz:given': there is no module 'ourz': .*install it"),
        ("ourz.given", r"there is no module 'ourz'"),
        ("ours_pkg.sub.dep:x", r"there is no module 'ours_pkg.sub.dep'"),
        ("ours_needs:x", r"tool 'ours_needs:x': there is no module 'a_package_that_is_missing'"),
        ("ours_broken:x", r"could not import ours_broken: KeyError: 'NOT_SET_ANYWHERE'"),
        ("ours_broken.sub.x", r"could not import ours_broken: KeyError"),
        ("ours_syntax:x", r"could not import ours_syntax: SyntaxError"),
        ("ours:gven", r"tool 'ours:gven': there is no 'gven' in it; did you mean given"),
        ("ours:zzzzzz", r"there is no 'zzzzzz' in it; name a LangChain tool"),
        ("ours", r"names no attribute: write ours:NAME"),
        ("ours:", r"names no attribute: write ours:NAME"),
        ("", r"is not a dotted name such as"),
        ("../ours.py:given", r"is not a dotted name such as"),
        ("ours:number", r"tool 'ours:number' is a int: name a LangChain tool"),
        ("ours:Box", r"is a type: name a LangChain tool"),
        ("ours:mute", r"has no docstring: write one"),
        ("ours:make_wrongly", r"is a factory that gave a int"),
        ("ours:make_later", r"is a factory that gave a coroutine"),
        ("ours:make_with", r"could not call it without arguments: TypeError: .*'key'"),
        ("ours:Needy", r"could not make it without arguments \(name a function"),
        ("ours:twice", r"both called 'given': leave one out"),
    ],
)
def test_a_wrong_name_is_told_with_the_remedy(name, message):
    with pytest.raises(UsageError, match=message):
        load_tools([name])


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"tools ours:given and ours_pkg.sub.deep:given are both called 'given'"):
        load_tools(["ours:given", "ours_pkg.sub.deep:given"])


# Running


async def run(function: Any, arguments: dict[str, Any] | None = None, seconds: float = 5, **options: Any) -> Any:
    function.__doc__ = function.__doc__ or "A tool."
    kind = "coroutine" if asyncio.iscoroutinefunction(function) else "func"
    made = StructuredTool.from_function(**{kind: function}, name="it", **options)
    return await run_tool(made, arguments or {}, seconds)


def giving(result: Any) -> Any:
    def it():
        return result

    return it


def raising(error: BaseException) -> Any:
    def it():
        raise error

    return it


class Point(BaseModel):
    x: int
    when: date


@dataclass
class Pair:
    left: int
    right: Point


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("ü text", "ü text"),
        (0, "0"),
        (False, "false"),
        ({"ü": [1, None]}, '{"ü": [1, null]}'),
        (["a", "b"], '["a", "b"]'),
        ([{"title": "x"}], '[{"title": "x"}]'),
        (Point(x=1, when=date(2026, 1, 2)), '{"x":1,"when":"2026-01-02"}'),
        ([Pair(1, Point(x=1, when=date(2026, 1, 2)))], '[{"left": 1, "right": {"x": 1, "when": "2026-01-02"}}]'),
        (b"bytes", "bytes"),
        ({1}, "[1]"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "image", "base64": "AAAA", "mime_type": "image/png"}], "[image/png: not shown]"),
        ([{"type": "file", "url": "https://x/y.pdf"}], "[file: https://x/y.pdf]"),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], "[image_url: not shown]"),
        (ToolMessage("said", tool_call_id="1"), "said"),
    ],
)
async def test_results_become_text(result, text):
    assert await run(giving(result)) == ToolOutcome(True, text)


@pytest.mark.parametrize("result", [None, "", " \n", [], {}, (), ToolMessage("", tool_call_id="1")])
async def test_nothing_is_no_answer(result):
    outcome = await run(giving(result))
    assert not outcome.ok
    assert outcome.text.startswith("ERROR: it gave an empty result\nCall it with other arguments")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad"), "ERROR: it failed: ValueError: bad\nCall"),
        (KeyError(), "ERROR: it failed: KeyError\nCall"),
        (StopIteration(), "ERROR: it failed: RuntimeError: StopIteration\nCall"),
        (ToolException("no such city"), "ERROR: it failed: no such city\nCall"),
        (ExceptionGroup("many", [ExceptionGroup("more", [OSError("disk")])]), "ERROR: it failed: OSError: disk\nCall"),
        (TimeoutError("the socket"), "ERROR: it failed: TimeoutError: the socket\nCall"),
        (SystemExit(3), "ERROR: it failed: RuntimeError: SystemExit: 3\nCall"),
        (ValueError("x" * 9999), "ERROR: it failed: ValueError: xxx"),
    ],
)
async def test_whatever_a_tool_raises_is_told(error, said):
    async def later():
        raise error

    for function in [raising(error), *([] if isinstance(error, SystemExit | StopIteration) else [later])]:
        outcome = await run(function)
        assert not outcome.ok
        assert outcome.text.startswith(said)
        assert len(outcome.text) < 2_200


async def test_errors_that_a_tool_turns_into_text_are_failures_all_the_same():
    outcome = await run(raising(ToolException("no such city")), handle_tool_error=True)
    assert outcome == (False, outcome.text)
    assert outcome.text.startswith("ERROR: it failed: no such city")
    outcome = await run(raising(ToolException("x")), handle_tool_error="Sorry, try later.")
    assert outcome.text.startswith("ERROR: it failed: Sorry, try later.")
    assert await run(giving({"a": 1}), handle_tool_error=True) == (True, '{"a": 1}')
    assert not (await run(giving(ToolMessage("x", tool_call_id="1", status="error")))).ok

    def typed(count: int) -> int:
        return count

    assert not (await run(typed, {"count": "many"}, handle_validation_error=True)).ok


async def test_refused_arguments_are_named():
    def typed(count: int, name: str) -> str:
        return name

    outcome = await run(typed, {"count": "many"})
    assert not outcome.ok
    assert outcome.text.startswith(
        "ERROR: it refused its arguments: count: Input should be a valid integer, unable to parse string as an "
        "integer; name: Field required\n"
    )


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_tool_has_its_time(asynchronous):
    async def later():
        await asyncio.sleep(9)

    def blocking():
        time.sleep(0.5)

    began = time.monotonic()
    outcome = await run(later if asynchronous else blocking, seconds=0.05)
    assert time.monotonic() - began < 0.4
    assert not outcome.ok
    assert outcome.text.startswith("ERROR: it gave nothing within 0.05 seconds\n")


async def test_synchronous_tools_leave_the_loop_alone_and_see_its_context():
    variable = contextvars.ContextVar("variable", default="unset")

    def blocking() -> str:
        time.sleep(0.1)
        return f"{variable.get()} {threading.current_thread() is threading.main_thread()}"

    class Own(BaseTool):
        name: str = "own"
        description: str = "A class with a synchronous method alone."

        def _run(self) -> str:
            return blocking()

    variable.set("set")
    tools = [StructuredTool.from_function(blocking, description="x"), Own(), Tool("t", lambda _: blocking(), "x")]
    for each in tools:
        arguments = {"x": "x"} if isinstance(each, Tool) else {}
        running = asyncio.ensure_future(run_tool(each, arguments, 5))
        ticks = 0
        while not running.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert running.result() == (True, "set False")
        assert ticks > 5


async def test_an_asynchronous_class_runs_on_the_loop():
    class Own(BaseTool):
        name: str = "own"
        description: str = "Asynchronous."

        def _run(self) -> str:
            raise NotImplementedError

        async def _arun(self) -> str:
            return f"{threading.current_thread() is threading.main_thread()}"

    assert await run_tool(Own(), {}, 5) == (True, "True")


async def test_a_tool_keeps_its_state():
    class Counter(BaseTool):
        name: str = "counter"
        description: str = "Counts."
        count: int = 0

        def _run(self) -> int:
            self.count += 1
            return self.count

    counter = Counter()
    assert [(await run_tool(counter, {}, 5)).text for _ in range(2)] == ["1", "2"]


@pytest.mark.parametrize("error", [GraphBubbleUp(), GraphInterrupt()])
async def test_signals_of_the_graph_pass_through(error):
    async def later():
        raise error

    for function in (raising(error), later):
        with pytest.raises(GraphBubbleUp):
            await run(function)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_cancellation_passes_through(asynchronous):
    async def later():
        await asyncio.sleep(9)

    def blocking():
        time.sleep(0.3)

    running = asyncio.ensure_future(run(later if asynchronous else blocking))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_long_results_are_cut_and_say_so():
    assert (await run(giving("x" * 20_000))).text == "x" * 20_000
    ok, text = await run(giving("x" * 123_456))
    assert ok
    assert text == "x" * 20_000 + "\n[cut here: 20,000 of 123,456 characters are shown]"
    assert (await run(giving(["x" * 30_000]))).text.endswith("of 30,004 characters are shown]")


async def test_decorated_tools_and_their_artifacts():
    @tool(response_format="content_and_artifact")
    def both() -> tuple[str, dict[str, int]]:
        """Give text and more."""
        return "text", {"more": 1}

    assert await run_tool(both, {}, 5) == (True, "text")


def test_a_tool_that_hangs_does_not_keep_the_program():
    code = (
        "import asyncio, time\nfrom langchain_core.tools import StructuredTool\nfrom nodes.tools.load import run_tool\n"
        "tool = StructuredTool.from_function(lambda: time.sleep(60), name='it', description='x')\n"
        "print(asyncio.run(run_tool(tool, {}, 0.2)).ok)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_results_of_json_can_be_read_back():
    [plain] = load_tools(["ours:plain"])
    assert json.loads(asyncio.run(run_tool(plain, {"count": 4}, 5)).text) == 8
