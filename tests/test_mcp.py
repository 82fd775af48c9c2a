"""MCP servers, real ones: started, called, killed, and ended with the run."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
import yaml
from blockbuster import BlockBuster

from frames.errors import UsageError
from nodes.tools import link
from nodes.tools import session as session_module
from nodes.tools.mcp import McpSessions, check_servers
from nodes.tools.run import run_tool
from studio.graphs import roma
from tests.cli import Cactus

SERVER = '''
import asyncio, os, sys
from contextlib import asynccontextmanager
from mcp.server.fastmcp import FastMCP
from mcp.types import ImageContent

log = open(sys.argv[1], "a", buffering=1)

@asynccontextmanager
async def session(server):
    print("session", os.getpid(), file=log)
    yield
    print("end", os.getpid(), file=log)

options = {"lifespan": session, "log_level": "ERROR"}
if len(sys.argv) > 2:
    options |= {"host": "127.0.0.1", "port": int(sys.argv[2])}
server = FastMCP("test", **options)

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)

@server.tool()
def nothing() -> list[str]:
    """Give an empty list."""
    return []

@server.tool()
def several() -> list[str]:
    """Give two texts."""
    return ["one", "two"]

@server.tool()
def picture() -> ImageContent:
    """Give a picture."""
    return ImageContent(type="image", data="AAAA", mimeType="image/png")

@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"

@server.tool()
def environment(name: str) -> str:
    """Give a variable and the folder."""
    return f"{os.environ.get(name)} {os.getcwd()}"

@server.tool(name="odd.name/of tool")
def odd() -> str:
    """Have an odd name."""
    return "odd"

print("remark on the standard error", file=sys.stderr)
server.run("streamable-http" if len(sys.argv) > 2 else "stdio")
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def stdio(script, log):
    return {"command": sys.executable, "args": [str(script), str(log)]}


class Http:
    """A server on the loopback that can be stopped and started."""

    def __init__(self, script: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._command = [sys.executable, str(script), str(log), str(self.port)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self.port)):
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def http(script, log):
    server = Http(script, log)
    yield server
    server.stop()


async def opened(servers):
    sessions = McpSessions(servers)
    return sessions, {tool.name: tool for tool in await sessions.tools()}


def sessions_in(log: Path) -> list[int]:
    """The process of each session that was begun."""
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("session")]


def told(log: Path) -> list[str]:
    """What the server's sessions told, in order."""
    return [line.split()[0] for line in log.read_text().splitlines()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid: int) -> bool:
    for _ in range(100):
        if not alive(pid):
            return True
        await asyncio.sleep(0.05)
    return False


# Over stdio


async def test_one_process_serves_all_calls(stdio, log, capfd):
    sessions = McpSessions({"sums": stdio})
    lists = await asyncio.gather(*(sessions.tools() for _ in range(5)))
    assert all([tool.name for tool in each] == [tool.name for tool in lists[0]] for each in lists)
    tools = {tool.name: tool for tool in lists[0]}
    outcomes = await asyncio.gather(*(run_tool(tools["add"], {"a": n, "b": 1}, 30) for n in range(10)))
    assert outcomes == [(True, str(n + 1)) for n in range(10)]
    [pid] = sessions_in(log)
    assert alive(pid)
    await sessions.close()
    await sessions.close()
    assert await gone(pid)
    ok, text = await run_tool(tools["add"], {"a": 1, "b": 1}, 30)
    assert not ok
    assert "was ended with the run" in text
    assert len(sessions_in(log)) == 1
    assert capfd.readouterr() == ("", "")


async def test_what_tools_give_and_how_they_fail(stdio):
    sessions, tools = await opened({"sums": stdio})
    assert tools["add"].description == "Add two numbers."
    assert set(tools["add"].args) == {"a", "b"}
    assert tools["nothing"].args == {}
    for name, arguments, ok, said in [
        ("several", {}, True, "one\ntwo"),
        ("nothing", {}, True, '{"result": []}'),
        ("picture", {}, True, "[image/png: not shown]"),
        ("odd_name_of_tool", {}, True, "odd"),
        ("fail", {"why": "no such city"}, False, "ERROR: fail failed: Error executing tool fail: no such city\n"),
        ("add", {"a": "x"}, False, "ERROR: add failed: Error executing tool add: 2 validation errors"),
        ("wait", {"seconds": 30}, False, "ERROR: wait gave nothing within 0.5 seconds"),
        ("add", {"a": 1, "b": 1}, True, "2"),
    ]:
        outcome = await run_tool(tools[name], arguments, 0.5 if name == "wait" else 30)
        assert outcome.ok == ok, outcome
        assert outcome.text.startswith(said)
    await sessions.close()


async def test_environment_and_folder(stdio, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_TEST", "${HOME} s3cret")
    (tmp_path / "sub").mkdir()
    server = {**stdio, "env": {"TOKEN": "Bearer ${SECRET_OF_TEST}"}, "cwd": str(tmp_path / "sub")}
    sessions, tools = await opened({"sums": server})
    assert (await run_tool(tools["environment"], {"name": "TOKEN"}, 30)).text == (
        f"Bearer ${{HOME}} s3cret {tmp_path / 'sub'}"
    )
    assert (await run_tool(tools["environment"], {"name": "SECRET_OF_TEST"}, 30)).text.startswith("None")
    await sessions.close()


@pytest.mark.parametrize("under_way", [True, False])
async def test_a_server_that_is_killed_fails_once_and_is_started_again(stdio, log, under_way):
    sessions, tools = await opened({"sums": stdio})
    [pid] = sessions_in(log)
    if under_way:
        calls = [asyncio.ensure_future(run_tool(tools["wait"], {"seconds": 60}, 50)) for _ in range(3)]
        await asyncio.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        outcomes = await asyncio.gather(*calls)
    else:
        os.kill(pid, signal.SIGKILL)
        assert await gone(pid)
        outcomes = [await run_tool(tools["add"], {"a": 1, "b": 1}, 30)]
    for ok, text in outcomes:
        assert not ok
        assert "MCP server 'sums' ended (it wrote: remark on the standard error). The next call starts it again" in text
    outcomes = await asyncio.gather(*(run_tool(tools["add"], {"a": n, "b": 1}, 30) for n in range(3)))
    assert outcomes == [(True, str(n + 1)) for n in range(3)]
    assert len(sessions_in(log)) == 2
    await sessions.close()
    assert await gone(sessions_in(log)[1])


async def test_a_server_that_cannot_be_started_again_is_told_each_time(stdio, log, script):
    sessions, tools = await opened({"sums": stdio})
    script.write_text("raise SystemExit('the disk is gone')")
    os.kill(sessions_in(log)[0], signal.SIGKILL)
    await run_tool(tools["add"], {"a": 1, "b": 1}, 30)
    for _ in range(2):
        ok, text = await run_tool(tools["add"], {"a": 1, "b": 1}, 30)
        assert not ok
        assert "MCP server 'sums' could not be started: it wrote: the disk is gone" in text
    script.write_text(SERVER)
    assert await run_tool(tools["add"], {"a": 1, "b": 1}, 30) == (True, "2")
    await sessions.close()


@pytest.mark.parametrize("fault", [anyio.ClosedResourceError(), anyio.BrokenResourceError()])
async def test_a_broken_pipe_is_told_as_a_closed_connection(fault, monkeypatch):
    monkeypatch.setattr(link, "_connected", Mock(side_effect=ExceptionGroup("streams", [fault])))
    lost = link.Link({})
    await asyncio.wait({lost.task})
    assert lost.reason() == "connection closed"


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"command": "no-such-program-anywhere"}, r"No such file or directory: 'no-such-program-anywhere'"),
        ({"command": sys.executable, "args": ["-c", "import no_such_module"]}, r"No module named 'no_such_module'"),
        ({"command": sys.executable, "args": ["-c", ""]}, r"[Cc]onnection closed"),
        ({"command": sys.executable, "args": ["-c", ""], "cwd": "/no/such/folder"}, r"/no/such/folder"),
        (
            {"command": sys.executable, "args": ["-c", "input(); print('what?'); input()"]},
            r"no answer within 2 seconds",
        ),
        ({"url": "http://127.0.0.1:9/mcp?key=s3cret"}, r"All connection attempts failed"),
    ],
)
async def test_a_server_that_does_not_start_is_told(stdio, log, server, message, monkeypatch):
    monkeypatch.setattr(session_module, "START_SECONDS", 2 if "input" in str(server) else 60)
    sessions = McpSessions({"good": stdio, "bad": server} if "input" not in str(server) else {"bad": server})
    with pytest.raises(UsageError, match=rf"MCP server 'bad' could not be started: .*{message}") as raised:
        await sessions.tools()
    assert "s3cret" not in str(raised.value)
    for pid in sessions_in(log) if log.exists() else []:
        assert await gone(pid)
    await sessions.close()


async def test_cancelling_the_start_leaves_no_process(tmp_path):
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    sessions = McpSessions({"slow": {"command": sys.executable, "args": ["-c", code]}})
    opening = asyncio.ensure_future(sessions.tools())
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110  # a process's
        await asyncio.sleep(0.05)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await sessions.close()
    assert await gone(int((tmp_path / "pid").read_text()))


async def test_names_that_two_servers_give_are_told_apart(stdio, http):
    sessions, tools = await opened({"a": stdio, "b": {"url": http.url}})
    assert {"a_add", "b_add"} <= set(tools)
    assert "add" not in tools
    assert await run_tool(tools["b_add"], {"a": 1, "b": 1}, 30) == (True, "2")
    await sessions.close()


# Over HTTP


async def test_one_http_session_serves_all_calls(http, log):
    sessions, tools = await opened({"sums": {"url": http.url, "headers": {"X-Key": "k"}}})
    outcomes = await asyncio.gather(*(run_tool(tools["add"], {"a": n, "b": 1}, 30) for n in range(10)))
    assert outcomes == [(True, str(n + 1)) for n in range(10)]
    ok, text = await run_tool(tools["fail"], {"why": "no such city"}, 30)
    assert not ok
    assert "no such city" in text
    assert len(sessions_in(log)) == 1
    await sessions.close()


async def test_an_http_server_that_is_killed_and_comes_back(http, log, monkeypatch):
    monkeypatch.setattr(session_module, "PING_SECONDS", 0.2)
    sessions, tools = await opened({"sums": {"url": http.url}})
    call = asyncio.ensure_future(run_tool(tools["wait"], {"seconds": 60}, 50))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(http.stop)
    ok, text = await call
    assert not ok
    assert "MCP server 'sums' ended" in text
    ok, text = await run_tool(tools["add"], {"a": 1, "b": 1}, 30)
    assert not ok
    assert "MCP server 'sums' could not be started: All connection attempts failed" in text
    await asyncio.to_thread(http.start)
    assert await run_tool(tools["add"], {"a": 1, "b": 1}, 30) == (True, "2")
    await asyncio.to_thread(http.stop)
    await asyncio.to_thread(http.start)  # it does not know the session any more
    assert not (await run_tool(tools["add"], {"a": 1, "b": 1}, 30)).ok
    assert await run_tool(tools["add"], {"a": 1, "b": 1}, 30) == (True, "2")
    await sessions.close()


# Configuration


def test_the_transport_is_inferred_and_variables_are_filled_in(monkeypatch):
    monkeypatch.setenv("KEY_OF_TEST", "k")
    assert check_servers(
        {
            "a": {"command": "x"},
            "b": {"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${KEY_OF_TEST}$KEY_OF_TEST"}},
            "c": {"url": "http://x/sse", "transport": "sse"},
            "d": {"url": "http://x/mcp", "transport": "http"},
        }
    ) == {
        "a": {"transport": "stdio", "command": "x", "args": [], "cwd": None, "env": {}},
        "b": {
            "transport": "streamable_http",
            "url": "https://x/mcp",
            "headers": {"Authorization": "Bearer k$KEY_OF_TEST"},
        },
        "c": {"transport": "sse", "url": "http://x/sse", "headers": {}},
        "d": {"transport": "streamable_http", "url": "http://x/mcp", "headers": {}},
    }


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("uvx x", r"'it' is no mapping: give it a command or a url"),
        ({}, r"'it' has neither command and url: give it one"),
        ({"command": "x", "url": "http://x"}, r"'it' has both command and url"),
        ({"command": "x", "arguments": []}, r"unknown key 'arguments': with command go command, args, env, cwd"),
        ({"url": "http://x", "env": {}}, r"unknown key 'env': with url go url, headers, transport"),
        ({"command": ["x"]}, r"has a command that is no text"),
        ({"command": " "}, r"has a command that is no text"),
        ({"command": "x", "args": "a b"}, r"has args that are no list"),
        ({"command": "x", "args": [1]}, r"has args that are no texts: quote them"),
        ({"command": "x", "cwd": 1}, r"has a cwd that is no text"),
        ({"command": "x", "env": {"PORT": 1}}, r"has env where 'PORT' is no text: quote it"),
        ({"command": "x", "env": ["A=b"]}, r"has env that are no mapping"),
        (
            {"command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}},
            r"\$\{NOT_SET_ANYWHERE\} in env, which is not set: set NOT",
        ),
        ({"url": "http://x", "headers": {"A": "${NOT_SET_ANYWHERE}"}}, r"in headers, which is not set"),
        ({"command": "x", "transport": "sse"}, r"has transport 'sse': with command goes stdio"),
        ({"url": "http://x", "transport": "websocket"}, r"with url goes streamable_http or "),
        ({"url": "x.org/mcp"}, r"has the url 'x.org/mcp': it begins with http"),
        ({"url": 3}, r"has the url 3: it begins with http"),
    ],
)
def test_a_wrong_configuration_is_told(server, message):
    with pytest.raises(UsageError, match=rf"MCP server .*{message}"):
        McpSessions({"it": server})


def test_a_server_needs_a_name():
    with pytest.raises(UsageError, match="has no name"):
        check_servers({"": {"command": "x"}})


async def test_without_the_package_the_way_to_it_is_told(stdio, monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_mcp_adapters", None)
    monkeypatch.delitem(sys.modules, "langchain_mcp_adapters.tools", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'cactus-solver\[mcp\]'"):
        await McpSessions({"sums": stdio}).tools()


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys, nodes.tools.mcp, nodes.tools.docs, nodes.tools.load\n"
        "print({'mcp', 'langchain_mcp_adapters', 'pypdf'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def sums() -> list[dict[str, Any]]:
    """Return the rules of a run of four searches, each of which adds two numbers with the server's tool."""
    parts = [{"id": str(n), "task": f"add {n} and 2", "kind": "search", "depends_on": []} for n in range(4)]
    return [
        {"role": "decompose", "json": {"subtasks": parts}},
        {"role": "atomize", "depth": 1, "reply": "yes"},
        *(
            {"role": "solve", "frame": rf"0\.{n}", "contains": rf"Observation: {n + 2}\b", "reply": f"it is {n + 2}"}
            for n in range(4)
        ),
        *(
            {"role": "solve", "frame": rf"0\.{n}", "reply": f'Action: add\nAction Input: {{"a": {n}, "b": 2}}'}
            for n in range(4)
        ),
        {"role": "aggregate", "contains": "(?s)it is 2.*it is 3.*it is 4.*it is 5", "reply": "2 3 4 5"},
    ]


def test_a_run_of_several_searches_opens_one_session_and_ends_it(
    stdio: dict[str, Any], log: Path, cactus: Cactus
) -> None:
    (cactus.folder / "c.yaml").write_text(yaml.safe_dump({"mcp_servers": {"sums": stdio}}))
    done = cactus("solve", "t", "--json", "--config", "c.yaml", "--model", cactus.script(*sums()))
    assert done.document["output"] == "2 3 4 5", done.err
    assert told(log) == ["session", "end"]


async def test_a_run_with_plain_settings_does_so_too_and_blocks_nothing(
    stdio: dict[str, Any], log: Path, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"rules": sums()}))
    settings: Any = {"model": f"scripted:{tmp_path / 's.yaml'}", "mcp_servers": {"sums": stdio}}
    blocker = BlockBuster()
    blocker.activate()
    try:
        output = await roma.ainvoke({"task": "t"}, context=settings)
    finally:
        blocker.deactivate()
    assert (output["output"], output["gaps"]) == ("2 3 4 5", [])
    assert told(log) == ["session", "end"]
