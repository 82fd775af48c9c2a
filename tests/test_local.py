"""The embedded model, for real: its server starts, answers, and leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from langchain_core.messages import AIMessageChunk

from frames.errors import CactusError, UsageError
from nodes.models import local as module
from nodes.models.local import LocalServer, available, problems
from nodes.models.weights import ensure_weights
from tests.cli import Cactus

PARENT = """
from nodes.models.local import LocalServer
server = LocalServer(context=1024)
print(server.start(), flush=True)
input()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(context=2048) as running:
        yield running


def _children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "local_server.py" in " ".join(child.cmdline())]


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/models", trust_env=False).status_code < 500  # 401 without the key
    except httpx.TransportError:
        return False


def test_a_call_is_answered_and_counted(server):
    reply = server.chat_model().invoke("What is 2 + 3? Reply with the number alone.")
    assert "5" in str(reply.text)
    assert reply.usage_metadata["input_tokens"] > 5
    assert reply.usage_metadata["output_tokens"] > 0
    assert reply.response_metadata["finish_reason"] == "stop"


async def test_a_streamed_call_is_counted_too(server):
    model = await asyncio.to_thread(server.chat_model)
    whole = AIMessageChunk("")
    async for chunk in model.astream("Count from 1 to 5."):
        whole += chunk
    assert "3" in str(whole.text)
    assert whole.usage_metadata["output_tokens"] > 0


def test_one_client_serves_several_event_loops(server):
    model = server.chat_model()
    for _ in range(2):
        assert asyncio.run(model.ainvoke("Say yes.")).text


def test_a_reply_is_capped(server):
    with_cap = LocalServer(max_tokens=3)
    with_cap._child = server._child
    reply = with_cap.chat_model().invoke("Count from 1 to 100.")
    assert reply.response_metadata["finish_reason"] == "length"
    assert reply.usage_metadata["output_tokens"] == 3


def test_a_prompt_longer_than_the_context_is_refused_in_words(server):
    with pytest.raises(Exception, match="exceeds the available context size") as caught:
        server.chat_model().invoke("word " * 3000)
    assert caught.value.status_code == 400


def test_another_program_is_kept_out(server):
    asked = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 1}
    assert httpx.post(f"{server.start()}/chat/completions", json=asked, trust_env=False).status_code == 401


def test_start_is_idempotent_and_close_ends_the_child():
    server = LocalServer(context=1024)
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(server.start())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(urls)) == 1
    child = server._child.process.pid
    server.close()
    server.close()
    assert not psutil.pid_exists(child)
    assert not _answers(urls[0])


def test_a_child_that_died_is_started_again():
    with LocalServer(context=1024) as server:
        model = server.chat_model()
        server._child.process.kill()
        server._child.process.wait()
        with pytest.raises(Exception, match="Connection error"):
            model.invoke("Say yes.")
        assert _answers(server.start())


def test_the_child_ignores_ctrl_c_and_ends_with_a_killed_parent():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        url = parent.stdout.readline().strip()
        [child] = psutil.Process(parent.pid).children()
        os.kill(child.pid, signal.SIGINT)
        assert _answers(url)
        parent.kill()
    assert _within(5, lambda: not child.is_running())
    assert not _answers(url)


def test_a_server_that_is_forgotten_ends():
    server = LocalServer(context=1024)
    server.start()
    child = server._child.process.pid
    del server
    assert _within(5, lambda: not psutil.pid_exists(child))


def test_close_stops_a_start_in_another_thread():
    server, errors = LocalServer(context=1024), []

    def start():
        try:
            server.start()
        except CactusError as error:
            errors.append(str(error))

    before = len(_children())
    thread = threading.Thread(target=start)
    thread.start()
    assert _within(10, lambda: server._child is not None)
    server.close()
    thread.join(10)
    assert errors
    assert len(_children()) == before


def test_close_stops_a_fetch_in_another_thread(monkeypatch):
    fetching = threading.Event()

    def fetch(report, weights):
        fetching.set()
        for done in range(1000):
            report(done, 1000)
            time.sleep(0.05)

    monkeypatch.setattr(module, "ensure_weights", fetch)
    server, errors = LocalServer(), []

    def start():
        with pytest.raises(CactusError) as caught:
            server.start()
        errors.append(str(caught.value))

    thread = threading.Thread(target=start)
    thread.start()
    assert fetching.wait(5)
    server.close()
    thread.join(5)
    assert errors == ["the embedded model was closed before it was ready"]


def test_a_file_that_is_no_model_is_told_with_the_servers_last_words(tmp_path: Path, monkeypatch):
    (tmp_path / "no.gguf").write_bytes(b"not a model")
    monkeypatch.setenv("CACTUS_GGUF", str(tmp_path / "no.gguf"))
    with pytest.raises(CactusError, match=r"did not start with .*no\.gguf: .*invalid magic"):
        LocalServer().start()
    assert not (tmp_path / "no.gguf.lock").exists()


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("_missing_packages", ["xllamacpp"], "pip install"),
        ("_has_avx2", False, "--model"),
        ("_has_gomp", False, "apt-get install libgomp1"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_fetched(monkeypatch, name, value, remedy):
    monkeypatch.setattr(module, name, lambda: value)
    monkeypatch.setattr(module, "ensure_weights", None)
    with pytest.raises(UsageError, match=remedy):
        LocalServer().start()
    assert remedy in problems()[0]


def test_problems_tell_of_weights_that_are_not_here(monkeypatch, tmp_path):
    assert available()
    ensure_weights()
    assert problems() == []
    monkeypatch.delenv("CACTUS_GGUF", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "on first use" in problems()[0]
    monkeypatch.setenv("CACTUS_GGUF", str(tmp_path / "none"))
    assert "CACTUS_GGUF" in problems()[0]


def test_a_task_is_solved_by_the_command_line(cactus: Cactus) -> None:
    task = "Name two colours: one warm, one cold. Answer in at most six words."
    done = cactus("solve", task, "--json", "--model", "local", "--max-depth", "0", "--deadline", "120")
    assert done.status == 0, done.err
    assert done.document["output"].strip()
    assert not done.document["usage"]["estimated"]
    assert "small offline demonstration model" in done.err
