"""LangGraph's dev server, started by ``cactus dev`` and used through ``langgraph_sdk``: what Studio does with it."""

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from frames.frame import Frame
from graph.routes import AFTER
from nodes.settings import PROFILE_DEFAULTS
from studio.commands import dev
from tests.cli import Cactus
from tests.scripts import SCRIPT, every_kind
from tests.servers import LangSmith, LangSmithHandler, serve
from tests.test_docs import blocks

PROFILES = list(PROFILE_DEFAULTS)
STUDIO = "https://smith.langchain.com"
PAGE = Path(__file__).parent.parent / "docs" / "studio.md"


@dataclass
class Server:
    """A running server, the folder it was started in, and a client of it."""

    url: str
    folder: Path
    client: SyncLangGraphClient

    def thread(self) -> str:
        return self.client.threads.create()["thread_id"]

    def settings(self, **settings: Any) -> dict[str, Any]:
        return {"model": f"scripted:{self.folder / 'script.yaml'}", **settings}

    def run(self, thread: str, profile: str, task: Any = None, **options: Any) -> Any:
        given = {"task": task} if task is not None else None
        return self.client.runs.wait(thread, profile, input=given, **options)

    def calls(self) -> list[tuple[str, str]]:
        lines = (self.folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()
        return [(call["frame"], call["role"]) for call in map(json.loads, lines)]

    def asked(self, thread: str) -> dict[str, str]:
        """Return the id of each question that waits, by frame."""
        waiting = self.client.threads.get_state(thread)["interrupts"]
        return {question["value"]["frame"]: question["id"] for question in waiting}

    def before(self, thread: str, node: str, frame: str) -> Any:
        """Return the last saved state from which ``node`` works on ``frame``."""
        history = self.client.threads.get_history(thread, limit=100)
        return next(s for s in history if s["next"] == [node] and s["values"]["stack"][-1]["id"] == frame)


class Proxy(LangSmithHandler):
    """Keeps every request that would leave this machine, and answers as LangSmith does."""

    def do_CONNECT(self) -> None:  # noqa: N802  # the name that http.server looks for
        self.server.state.requests.append(self.path)  # type: ignore[attr-defined]
        self.answer(502, b"{}")


@contextmanager
def serving(folder: Path, outside: str, *args: str) -> Iterator[Server]:
    """Start ``cactus dev`` with everything set that would have it call ``outside``."""
    (folder / "script.yaml").write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    langsmith = {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "x", "LANGSMITH_ENDPOINT": outside}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), outside)
    local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    environment = {**os.environ, **langsmith, **proxies, **local, "CACTUS_MODEL": f"scripted:{folder / 'script.yaml'}"}
    command = [sys.executable, "-m", "studio.main", "dev", "--port", str(port), *args]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            await_server(url, process, folder / "log")
            with get_sync_client(url=url) as client:
                yield Server(url, folder, client)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                status = process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert status == 0, (folder / "log").read_text(encoding="utf-8")


def await_server(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/ok", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8"))


def wait_until(there: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="session")
def outside() -> Iterator[tuple[str, LangSmith]]:
    state = LangSmith()
    with serve(Proxy, state) as address:
        yield address, state


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, outside: tuple[str, LangSmith]) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), outside[0]) as running:
        yield running


# What Studio draws


def test_each_profile_is_an_assistant(server: Server) -> None:
    found = server.client.assistants.search()
    assert sorted((each["graph_id"], each["name"]) for each in found) == [(name, name) for name in sorted(PROFILES)]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_schemas_are_small_and_those_of_the_profile(server: Server, profile: str) -> None:
    [assistant] = server.client.assistants.search(graph_id=profile)
    schemas: Any = server.client.assistants.get_schemas(assistant["assistant_id"])
    assert list(schemas["input_schema"]["properties"]) == ["task"]
    assert len(schemas["output_schema"]["properties"]) == 8
    form = schemas["context_schema"]["properties"]
    assert form["profile"]["default"] == profile
    assert {name: form[name]["default"] for name in PROFILE_DEFAULTS[profile]} == PROFILE_DEFAULTS[profile]
    assert form["max_retries"]["minimum"] == 1


def test_the_drawing_has_the_nodes_and_where_each_leads(server: Server) -> None:
    [assistant] = server.client.assistants.search(graph_id="roma")
    drawn: Any = server.client.assistants.get_graph(assistant["assistant_id"], xray=True)
    assert {node["id"] for node in drawn["nodes"]} == {"__start__", *AFTER, "__end__"}
    assert {node["id"]: node["metadata"]["role"] for node in drawn["nodes"] if "metadata" in node} == {
        name: name for name in AFTER
    }
    edges = {(edge["source"], edge["target"]) for edge in drawn["edges"]}
    assert edges == {("__start__", "atomize"), *((name, after) for name in AFTER for after in AFTER[name])}


# Runs


@pytest.mark.parametrize(("profile", "frames"), [("classic", 7), ("roma", 7)])
def test_a_run(server: Server, profile: str, frames: int) -> None:
    settings = server.settings(max_depth=2, **({"atomizer": "depth:2"} if profile == "classic" else {}))
    result = server.run(server.thread(), profile, "the task", context=settings)
    assert (result["status"], result["output"], result["gaps"]) == ("succeeded", "combined 0", [])
    assert result["frames"] == frames


def test_settings_that_there_are_not_are_dropped_as_the_page_says(server: Server) -> None:
    assert server.run(server.thread(), "roma", "t", context=server.settings(max_depth=0, unknown=1))["success"]


def test_a_run_without_settings_has_the_profiles(server: Server) -> None:
    before = len(server.calls())
    assert server.run(server.thread(), "roma", "the task")["frames"] == 7
    roles = {role for _, role in server.calls()[before:]}
    assert roles == {"atomize", "decompose", "solve", "aggregate", "verify"}  # classic would ask no atomizer


def test_a_second_task_on_a_thread_starts_afresh(server: Server) -> None:
    thread = server.thread()
    results = [server.run(thread, "roma", task, context=server.settings(max_depth=1)) for task in ("one", "two")]
    assert [len(result["traces"]) for result in results] == [7, 7]


def test_a_stream_shows_what_happens_within_branches(server: Server) -> None:
    modes: Any = ["updates", "custom"]
    stream = server.client.runs.stream(
        server.thread(),
        "roma",
        input={"task": "the task"},
        context=server.settings(),
        stream_mode=modes,
        stream_subgraphs=True,
    )
    parts = [(part.event, part.data) for part in stream]
    assert not [data for event, data in parts if event == "error"]
    branches = {event.split("|")[2].split(":")[0] for event, _ in parts if event.count("|") == 2}
    assert branches == {"branch 0.0", "branch 0.1"}
    solved = {data["frame"] for event, data in parts if "|" in event and data.get("event") == "answer"}
    assert solved == {"0.0.0", "0.0.1", "0.1.0", "0.1.1", "0.0", "0.1"}
    assert [name for event, data in parts if event == "updates" for name in data][-2:] == ["aggregate", "verify"]


def test_runs_do_not_wait_for_each_other(server: Server) -> None:
    (server.folder / "slow.yaml").write_text(yaml.safe_dump({"latency": 20, "default": "x"}), encoding="utf-8")
    thread = server.thread()
    slow = f"scripted:{server.folder / 'slow.yaml'}"
    run = server.client.runs.create(thread, "classic", input={"task": "slow"}, context={"model": slow, "max_depth": 0})
    began = time.monotonic()
    assert server.run(server.thread(), "classic", "quick", context=server.settings(max_depth=0))["success"]
    assert time.monotonic() - began < 10
    server.client.runs.cancel(thread, run["run_id"], wait=True)


WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"max_retries": 0}, "t", "max_retries"),
    ({"profile": "classic"}, "t", "Input should be 'roma'"),
    ({"docs": "/nowhere"}, "t", "there is no folder /nowhere"),
    ({"max_usd": 1}, "t", "the price of scripted:"),
    ({"mcp_servers": {"x": {"command": "/nowhere/x"}}}, "t", "MCP server 'x' could not be started"),
    ({}, " ", "the task is empty"),
    ({}, 5, "the task must be a text, not int"),
]


async def test_wrong_input_is_refused_in_words(server: Server) -> None:
    async def refused(client: LangGraphClient, settings: dict[str, Any], task: Any, said: str) -> None:
        with pytest.raises(Exception, match=said):  # the client raises a bare Exception
            await client.runs.wait(None, "roma", input={"task": task}, context=server.settings(**settings))

    async with get_client(url=server.url) as client:
        await asyncio.gather(*(refused(client, *wrong) for wrong in WRONG))


def test_case_23_no_node_blocks_the_event_loop(server: Server) -> None:
    thread, settings = server.thread(), every_kind(server.folder)
    server.run(thread, "roma", "the task", context=settings)
    resume: Any = {"resume": {server.asked(thread)["0"]: "approve"}}
    result = server.run(thread, "roma", command=resume, context=settings)
    assert (result["status"], result["gaps"]) == ("succeeded", [])
    solved = [trace["frame"] for trace in result["traces"] if trace["type"] == "SOLVED"]
    assert sorted(solved) == ["0.0", "0.1", "0.1", "0.2", "0.3"]
    assert "Blocking" not in (server.folder / "log").read_text(encoding="utf-8")


# A person decides


def test_questions_of_branches_are_answered_by_id(server: Server) -> None:
    thread, settings = server.thread(), server.settings(approve="plan")
    first = server.run(thread, "roma", "the task", context=settings)
    assert [question["value"]["frame"] for question in first["__interrupt__"]] == ["0"]
    assert server.client.threads.get(thread)["status"] == "interrupted"

    def reply(frame: str, decision: Any) -> Any:
        resume: Any = {"resume": {server.asked(thread)[frame]: decision}}
        return server.run(thread, "roma", command=resume, context=settings)

    reply("0", "approve")
    assert set(server.asked(thread)) == {"0.0", "0.1"}
    reply("0.1", {"action": "edit", "plan": ["only this"]})
    assert set(server.asked(thread)) == {"0.0"}
    before = len(server.calls())
    result = reply("0.0", "approve")
    assert result["status"] == "succeeded"
    assert result["frames"] == 6
    again = [call for call in server.calls()[before:] if call[0].startswith("0.1")]
    assert again == []  # what the other branch did is not done once more
    assert "only this" in {trace["task"] for trace in result["traces"]}


def test_the_pages_python_does_what_it_says(server: Server) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(blocks(PAGE, "python")[0], PAGE.name, "exec"), namespace)  # the docs' own code
    thread, values = namespace["decided"](server.url, "the task", server.settings())
    assert (values["status"], values["output"], values["frames"]) == ("succeeded", "combined 0", 7)
    before = len(server.calls())
    assert namespace["combined_again"](server.url, thread, server.settings())["output"] == "combined 0"
    assert server.calls()[before:] == [("0", "aggregate"), ("0", "verify")]


# History


def test_the_history_is_every_step(server: Server) -> None:
    thread = server.thread()
    server.run(thread, "roma", "the task", context=server.settings())
    history = server.client.threads.get_history(thread, limit=100)
    steps = [state["next"] for state in reversed(history)]
    assert steps == [["__start__"], ["atomize"], ["decompose"], ["fork"], ["aggregate"], ["verify"], []]
    assert history[0]["values"]["status"] == "succeeded"


def test_a_replay_from_a_checkpoint_asks_only_what_comes_after_it(server: Server) -> None:
    thread, settings = server.thread(), server.settings()
    server.run(thread, "roma", "the task", context=settings)
    saved, before = server.before(thread, "aggregate", "0"), len(server.calls())
    result = server.run(thread, "roma", checkpoint=saved["checkpoint"], context=settings)
    assert (result["output"], result["frames"]) == ("combined 0", 7)
    assert server.calls()[before:] == [("0", "aggregate"), ("0", "verify")]


@pytest.mark.parametrize("form", ["frames", "operations"])
def test_a_fork_by_state_update_works_on_what_was_written(server: Server, form: str) -> None:
    thread, settings = server.thread(), server.settings(max_depth=1)
    first = server.run(thread, "classic", "the task", context=settings)
    saved, before = server.before(thread, "solve", "0.1"), len(server.calls())
    *below, frame = saved["values"]["stack"]
    changed = Frame({**frame, "task": "the other half"})
    write = [*below, changed] if form == "frames" else [{"op": "revise", "fields": {"task": "the other half"}}]
    update: Any = server.client.threads.update_state(thread, {"stack": write}, checkpoint=saved["checkpoint"])
    result = server.run(thread, "classic", checkpoint=update["checkpoint"], context=settings)
    assert result["success"]
    assert server.calls()[before:] == [("0.1", "solve"), ("0", "aggregate")]
    solved = [[t["detail"] for t in each["traces"] if t["type"] == "SOLVED"] for each in (first, result)]
    assert solved[0] == ["answer to first half of 0", "answer to second half of 0"]
    assert solved[1] == ["answer to first half of 0", "answer to the other half"]


# Who may use it


def preflight(server: Server, origin: str) -> httpx.Response:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    return httpx.options(f"{server.url}/runs", headers=asked, trust_env=False)


@pytest.mark.parametrize("origin", [STUDIO, "https://eu.smith.langchain.com", "http://localhost:3000"])
def test_studio_and_pages_of_this_machine_are_let_in(server: Server, origin: str) -> None:
    allowed = preflight(server, origin)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == origin
    assert allowed.headers["access-control-allow-private-network"] == "true"
    found = httpx.post(f"{server.url}/assistants/search", json={}, headers={"Origin": origin}, trust_env=False)
    assert len(found.json()) == len(PROFILES)
    assert found.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://smith.langchain.com.evil.example", "http://localhost.evil.example", "null"],
)
def test_other_pages_are_kept_out(server: Server, origin: str) -> None:
    assert preflight(server, origin).status_code == 403
    body, kind = '{"assistant_id": "roma", "input": {"task": "t"}}', "text/plain"  # browsers ask nothing before this
    sent = httpx.post(
        f"{server.url}/runs", content=body, headers={"Origin": origin, "Content-Type": kind}, trust_env=False
    )
    assert (sent.status_code, origin in sent.text) == (403, True)


# The command


def test_the_pages_commands_are_understood() -> None:
    lines = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if "cactus dev" in line]
    assert len(lines) == 2
    for line in lines:
        dev.command.make_context("dev", shlex.split(line)[2:])  # raises for an option that there is not


def test_a_taken_port_is_wrong_use(server: Server, cactus: Cactus) -> None:
    port = server.url.rpartition(":")[2]
    done = cactus("dev", "--port", port)
    assert done.status == 2
    assert done.err == f"cactus: port {port} of 127.0.0.1 is taken: name another with --port, or 0 for a free one\n"


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "::1"])
def test_an_address_of_another_machine_is_wrong_use(cactus: Cactus, host: str) -> None:
    done = cactus("dev", "--host", host, "--port", "0")
    assert done.status == 2
    assert f"cannot listen on {host}:0: " in done.err


def test_without_the_server_the_remedy_is_named(cactus: Cactus, monkeypatch: pytest.MonkeyPatch) -> None:
    find = dev.find_spec

    def without(name: str) -> ModuleSpec | None:
        return None if name == "langgraph_api" else find(name)

    monkeypatch.setattr(dev, "find_spec", without)
    done = cactus("dev")
    assert done.status == 2
    assert done.err == "cactus: the dev server is not installed: pip install 'cactus-solver[studio]'\n"


def test_asked_to_trace_it_does(tmp_path: Path) -> None:
    state = LangSmith()
    with serve(LangSmithHandler, state) as address, serving(tmp_path, address, "--trace") as running:
        assert running.run(running.thread(), "classic", "t", context=running.settings(max_depth=0))["success"]
        wait_until(lambda: "solve 0 attempt 1" in {run.get("name") for run in list(state.runs.values())})


def test_a_run_under_way_goes_on_when_the_server_starts_again(tmp_path: Path) -> None:
    with serving(tmp_path, "http://127.0.0.1:9") as first:
        slow = {"rules": [{"role": "solve", "latency": 3, "reply": "slow"}], "default": "x"}
        (tmp_path / "slow.yaml").write_text(yaml.safe_dump(slow), encoding="utf-8")
        thread, settings = first.thread(), {"model": f"scripted:{tmp_path / 'slow.yaml'}", "max_depth": 0}
        first.client.runs.create(thread, "classic", input={"task": "t"}, context=settings)
        wait_until(lambda: first.client.threads.get_state(thread)["next"] == ["solve"])
    with serving(tmp_path, "http://127.0.0.1:9") as second:
        wait_until(lambda: second.client.threads.get_state(thread)["values"].get("status") == "succeeded")


def test_nothing_is_sent_elsewhere(server: Server, outside: tuple[str, LangSmith]) -> None:
    assert server.run(server.thread(), "roma", "t", context=server.settings())["success"]
    time.sleep(1)  # traces are sent some time after
    assert outside[1].requests == []
