"""The scripted model: rules, faults, delays, its log, and the messages for a bad script."""

import asyncio
import hashlib
import json
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from frames.errors import CallError, RefusedError, ReplyCutError, UsageError
from nodes.models.request import Request, current_request
from nodes.models.script import LONGEST_LATENCY, Latency, check_script, fill, fill_json
from nodes.models.scripted import ScriptedChatModel

ROOT = Request("0", "solve", 0, 1, "the task")


@contextmanager
def asked_by(frame="0", role="solve", depth=0, attempt=1, task="the task"):
    token = current_request.set(Request(frame, role, depth, attempt, task))
    try:
        yield
    finally:
        current_request.reset(token)


def ask(model, prompt="hello", **request):
    with asked_by(**request):
        return model.invoke(prompt)


def build(**script):
    return ScriptedChatModel.from_script(script, folder=Path())


def rules(*given_rules, **script):
    return build(rules=list(given_rules), **script)


def from_text(tmp_path, text, name="script.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return ScriptedChatModel.from_file(path)


# Conditions


@pytest.mark.parametrize(
    ("condition", "hit", "miss"),
    [
        ({"role": "verify"}, {"role": "verify"}, {"role": "solve"}),
        ({"frame": r"0\.1"}, {"frame": "0.1"}, {"frame": "0.1.0"}),
        ({"frame": r"0\.1.*"}, {"frame": "0.1.0"}, {"frame": "0.2"}),
        ({"frame": "1"}, {"frame": "1"}, {"frame": "0.1"}),
        ({"depth": 2}, {"depth": 2}, {"depth": 1}),
        ({"depth": 0}, {"depth": 0}, {"depth": 1}),
        ({"attempt": 2}, {"attempt": 2}, {"attempt": 1}),
        ({"task": "REST|rest"}, {"task": "from rest on"}, {"task": "from soap"}),
        ({"contains": "hel+o"}, {"prompt": "say hello"}, {"prompt": "say bye"}),
        ({"role": "solve", "depth": 1}, {"depth": 1}, {"depth": 1, "role": "aggregate"}),
    ],
)
def test_a_condition_selects(condition, hit, miss):
    model = rules({**condition, "reply": "hit"}, default="miss")
    assert ask(model, **hit).text == "hit"
    assert ask(model, **miss).text == "miss"


def test_contains_looks_in_all_messages_and_task_does_not():
    model = rules({"task": "system words", "reply": "task"}, {"contains": "system words", "reply": "all"})
    with asked_by(task="mine"):
        assert model.invoke([SystemMessage("system words"), HumanMessage("hi")]).text == "all"


def test_the_first_rule_that_holds_answers():
    model = rules({"frame": "0", "reply": "first"}, {"reply": "second"}, {"reply": "third"})
    assert ask(model).text == "first"
    assert ask(model, frame="0.0").text == "second"


def test_outside_a_run_the_task_is_the_last_human_message():
    model = rules({"task": "^second$", "depth": 0, "attempt": 1, "reply": "[{frame}][{role}][{depth}][{attempt}]"})
    assert model.invoke([HumanMessage("first"), AIMessage("no"), HumanMessage("second")]).text == "[][][0][1]"


def test_without_a_human_message_the_task_is_empty():
    assert build(default="<{task}>").invoke([SystemMessage("s")]).text == "<>"


# times


def test_times_counts_the_requests_that_a_rule_answers():
    model = rules(
        {"frame": "0", "error": "server", "times": 2}, {"frame": "0", "reply": "once", "times": 1}, {"reply": "rest"}
    )
    assert ask(model, frame="0.1").text == "rest"
    for _ in range(2):
        with pytest.raises(httpx.HTTPStatusError):
            ask(model)
    assert [ask(model).text for _ in range(3)] == ["once", "rest", "rest"]


def test_times_is_counted_per_model_and_zero_is_never():
    script = {"rules": [{"reply": "never", "times": 0}, {"reply": "once", "times": 1}], "default": "rest"}
    for model in (ScriptedChatModel.from_script(script), ScriptedChatModel.from_script(script)):
        assert [ask(model).text for _ in range(2)] == ["once", "rest"]


def test_times_is_exact_under_threads():
    model = rules({"reply": "few", "times": 37}, default="rest")
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda n: model.invoke(str(n)).text, range(200)))
    assert texts.count("few") == 37


async def test_times_is_exact_under_asyncio():
    model = rules({"reply": "few", "times": 5}, default="rest", latency=0.001)
    replies = await asyncio.gather(*(model.ainvoke(str(n)) for n in range(50)))
    assert [reply.text for reply in replies].count("few") == 5


# Replies


async def test_requests_in_parallel_keep_their_frames():
    model = build(default="{frame}", latency=0.005)

    async def one(frame):
        with asked_by(frame=frame):
            return (await model.ainvoke("x")).text

    frames = [f"0.{n}" for n in range(40)]
    assert await asyncio.gather(*map(one, frames)) == frames


def test_all_placeholders():
    model = build(default="{task}|{frame}|{role}|{depth}|{attempt}|{other}|{}|{{task}}")
    said = ask(model, frame="0.1", role="aggregate", depth=1, attempt=2, task="{frame}").text
    assert said == "{frame}|0.1|aggregate|1|2|{other}|{}|{{frame}}"


@given(st.text(), st.text())
def test_filling_never_raises_and_leaves_other_braces(template, task):
    filled = fill(template, ROOT._replace(task=task))
    if not any("{" + name + "}" in template for name in Request._fields):
        assert filled == template


@given(st.lists(st.sampled_from(["{", "}", "{{", "}}", "{task}", "{frame}", "{x}", "{task!r}", "%s", "\\1", "\\g<0>"])))
def test_filling_replaces_only_whole_placeholders(parts):
    template = "".join(parts)
    expected = template.replace("{task}", "T").replace("{frame}", "F")
    assert fill(template, Request("F", "solve", 0, 1, "T")) == expected


@given(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_filling_json_gives_json(task, rest):
    filled = fill_json(json.dumps({"task": "<{task}>", "rest": rest}), ROOT._replace(task=task))
    assert json.loads(filled)["task"] == f"<{task}>"


def test_a_reply_says_why_it_stopped_and_who_spoke():
    reply = ask(build(default="ok"))
    assert reply.response_metadata["finish_reason"] == "stop"
    assert reply.response_metadata["model_name"] == "scripted"


@pytest.mark.parametrize(("question", "answer"), [("q", "a"), ("12345", "1234"), ("x" * 40, "y z " * 9), ("", "")])
def test_usage_is_a_quarter_of_the_text_rounded_up(question, answer):
    usage = ask(build(default=answer), question).usage_metadata
    given_tokens, got = math.ceil(len(question) / 4), math.ceil(len(answer) / 4)
    assert usage == {"input_tokens": given_tokens, "output_tokens": got, "total_tokens": given_tokens + got}


@pytest.mark.parametrize("text", ["one two  three\n four", " lead and trail \n", "word", "", " \n "])
async def test_streamed_is_the_same_as_not_streamed(text):
    model = build(default=text)
    whole = model.invoke("a question")
    chunks = list(model.stream("a question"))
    achunks = [chunk async for chunk in model.astream("a question")]
    assert [chunk.text for chunk in chunks] == [chunk.text for chunk in achunks]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert all(chunk.usage_metadata is None for chunk in chunks[:-1])
    assert chunks[-1].usage_metadata == achunks[-1].usage_metadata == whole.usage_metadata
    assert chunks[-1].response_metadata["finish_reason"] == "stop"
    assert len(chunks) == max(1, len(text.split()) + text.startswith(" ") * bool(text.split()))
    assert (await model.ainvoke("a question")).usage_metadata == whole.usage_metadata


def test_a_refusal_is_streamed_too():
    total = None
    for chunk in rules({"error": "refusal", "reply": "I will not"}).stream("x"):
        total = chunk if total is None else total + chunk
    assert total.additional_kwargs == {"refusal": "I will not"}
    assert total.response_metadata["finish_reason"] == "content_filter"


def test_a_reply_only_or_json_only_rule_answers_either_request():
    model = rules({"role": "solve", "json": {"a": 1}}, {"reply": '{"b": "{task}"}'})
    assert json.loads(ask(model).text) == {"a": 1}
    with asked_by(role="aggregate", task='say "x"'):
        assert model.with_structured_output({"title": "T"}).invoke("x") == {"b": 'say "x"'}


def test_a_rule_may_give_both():
    model = rules({"reply": "plain", "json": {"n": 1}})
    assert model.invoke("x").text == "plain"
    assert model.with_structured_output({"title": "T"}).invoke("x") == {"n": 1}


# Defaults


@pytest.mark.parametrize("script", [{}, {"default": "ok"}, {"rules": [], "default": "ok"}])
@pytest.mark.parametrize(
    ("role", "text", "value"),
    [
        ("atomize", "no", {"atomic": False}),
        ("decompose", "", {"subtasks": []}),
        ("verify", "ACCEPT", {"accepted": True, "feedback": ""}),
    ],
)
def test_three_roles_have_their_own_default(script, role, text, value):
    model = ScriptedChatModel.from_script(script)
    assert ask(model, role=role).text == text
    with asked_by(role=role):
        assert model.with_structured_output({"title": "T"}).invoke("x") == value


def test_no_rule_and_no_default_shows_the_request():
    with pytest.raises(CallError) as caught:
        ask(build(), frame="0.3", task="long " * 100)
    message = str(caught.value)
    assert "'solve'" in message
    assert "'0.3'" in message
    assert "long long" in message
    assert "rule" in message
    assert "default" in message
    assert len(message) < 350
    assert "\n" not in message


# Structured requests


class Verdict(BaseModel):
    accepted: bool
    feedback: str = ""


class Atomic(TypedDict):
    atomic: bool


async def test_a_pydantic_class_gives_its_instance():
    model = rules({"json": {"accepted": False, "feedback": "{frame}: too short"}})
    structured = model.with_structured_output(Verdict)
    with asked_by(frame="0.7"):
        wanted = Verdict(accepted=False, feedback="0.7: too short")
        assert structured.invoke("x") == wanted
        assert await structured.ainvoke("x") == wanted
        assert list(structured.stream("x")) == [wanted]
        assert [one async for one in structured.astream("x")] == [wanted]


@pytest.mark.parametrize("schema", [Atomic, {"title": "Atomic", "type": "object"}, {"name": "Atomic"}, {}])
def test_other_schemas_give_dicts(schema):
    model = rules({"reply": '{"atomic": true}'})
    assert model.with_structured_output(schema, method="json_schema", strict=True).invoke("x") == {"atomic": True}


def test_a_number_may_be_a_placeholder():
    model = rules({"reply": '{"depth": {depth}}'})
    assert model.with_structured_output({"title": "T"}).invoke("x") == {"depth": 0}


@pytest.mark.parametrize("reply", ["not JSON", "[1]", '{"feedback": "no accepted"}', "", "1"])
async def test_an_unfit_reply_is_a_clear_error(reply):
    model = rules({"reply": reply})
    with pytest.raises(OutputParserException, match="scripted reply"):
        model.with_structured_output(Verdict).invoke("x")
    raw = await model.with_structured_output(Verdict, include_raw=True).ainvoke("x")
    assert raw["raw"].text == reply
    assert raw["parsed"] is None
    assert isinstance(raw["parsing_error"], OutputParserException)


def test_raw_gives_usage_and_the_parsed_value():
    raw = rules({"json": {"accepted": True}}).with_structured_output(Verdict, include_raw=True).invoke("x")
    assert raw["parsed"] == Verdict(accepted=True)
    assert raw["parsing_error"] is None
    assert raw["raw"].usage_metadata["output_tokens"] == math.ceil(len('{"accepted": true}') / 4)


@pytest.mark.parametrize(("error", "kind"), [("refusal", RefusedError), ("length", ReplyCutError)])
def test_a_refused_or_cut_reply_is_not_parsed(error, kind):
    model = rules({"error": error, "json": {"accepted": True}})
    with pytest.raises(kind):
        model.with_structured_output(Verdict).invoke("x")
    raw = model.with_structured_output(Verdict, include_raw=True).invoke("x")
    assert isinstance(raw["parsing_error"], kind)


def test_transport_faults_pass_through_a_structured_request():
    for include_raw in (False, True):
        with pytest.raises(httpx.ReadTimeout):
            rules({"error": "timeout"}).with_structured_output(Verdict, include_raw=include_raw).invoke("x")


def test_a_schema_must_be_a_schema():
    with pytest.raises(TypeError, match="schema"):
        build().with_structured_output("Verdict")


def test_tools_are_ignored():
    assert build(default="ok").bind_tools([Verdict]).invoke("x").text == "ok"


# Faults


@pytest.mark.parametrize(
    ("rule", "kind", "status"),
    [
        ({"error": "rate_limit"}, httpx.HTTPStatusError, 429),
        ({"error": "server"}, httpx.HTTPStatusError, 503),
        ({"error": "timeout"}, httpx.ReadTimeout, None),
        ({"error": "connection"}, httpx.ConnectError, None),
    ],
)
async def test_transport_faults(rule, kind, status):
    model = rules(rule)
    caught = []
    with pytest.raises(kind) as sync_fault:
        model.invoke("x")
    with pytest.raises(kind) as async_fault:
        await model.ainvoke("x")
    with pytest.raises(kind) as stream_fault:
        list(model.stream("x"))
    caught = [sync_fault.value, async_fault.value, stream_fault.value]
    if status:
        assert [fault.response.status_code for fault in caught] == [status] * 3
        assert "retry-after" not in sync_fault.value.response.headers


@pytest.mark.parametrize("seconds", [0, 0.2, 3])
def test_retry_after_is_a_header(seconds):
    with pytest.raises(httpx.HTTPStatusError) as caught:
        ask(rules({"error": "rate_limit", "retry_after": seconds}))
    assert float(caught.value.response.headers["retry-after"]) == seconds


@pytest.mark.parametrize(("reply", "text"), [({}, ""), ({"reply": "no, {task}"}, "no, the task")])
def test_a_refusal_is_a_message(reply, text):
    message = ask(rules({"error": "refusal", **reply}))
    assert message.text == text
    assert message.additional_kwargs["refusal"]
    assert message.response_metadata["finish_reason"] == "content_filter"


def test_a_cut_reply_is_the_start_of_the_reply():
    message = ask(rules({"error": "length", "reply": "a long answer"}))
    assert message.text
    assert "a long answer".startswith(message.text)
    assert message.text != "a long answer"
    assert message.response_metadata["finish_reason"] == "length"
    assert ask(rules({"error": "length"})).text


async def test_a_hang_awaits_until_it_is_cancelled():
    model = rules({"error": "hang"})
    streamed = anext(model.astream("x"))
    for call in (model.ainvoke("x"), model.with_structured_output(Verdict).ainvoke("x"), streamed):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await call


def test_a_sync_hang_sleeps_shortly_again_and_again(monkeypatch):
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("nodes.models.scripted.time.sleep", nap)
    with pytest.raises(KeyboardInterrupt):
        rules({"error": "hang"}).invoke("x")
    assert max(naps) <= 1


def test_a_sync_hang_ends_after_a_day(monkeypatch):
    monkeypatch.setattr("nodes.models.scripted.LONGEST_LATENCY", 0.01)
    with pytest.raises(httpx.ReadTimeout):
        rules({"error": "hang"}).invoke("x")


# Latency


async def test_a_latency_is_waited_for():
    model = build(default="ok", latency=0.05)
    started = time.monotonic()
    model.invoke("x")
    await asyncio.gather(*(model.ainvoke("x") for _ in range(20)))
    assert 0.1 <= time.monotonic() - started < 0.8


def test_a_rules_latency_overrides(monkeypatch):
    naps = []
    monkeypatch.setattr("nodes.models.scripted.time.sleep", naps.append)
    model = rules(
        {"frame": "0", "reply": "a", "latency": 0},
        {"frame": "1", "reply": "b", "latency": {"median": 2}},
        {"frame": "2", "error": "server"},
        default="c",
        latency=9,
    )
    ask(model)
    ask(model, frame="1")
    with pytest.raises(httpx.HTTPStatusError):
        ask(model, frame="2")
    ask(model, frame="3")
    assert naps == [2, 9, 9]


requests = st.builds(
    Request, st.text(), st.text(), st.integers(), st.integers(), st.text()
)  # what a latency is drawn from


@given(st.floats(0, 1e300), st.floats(0, 1e300), st.integers(), requests)
def test_a_latency_is_the_same_for_the_same_request(median, sigma, seed, request):
    seconds = Latency(median, sigma, seed).seconds(request)
    assert 0 <= seconds <= LONGEST_LATENCY
    assert Latency(median, sigma, seed).seconds(request._replace(task="other", depth=9)) == seconds


@given(st.floats(0, 1000), requests)
def test_without_sigma_a_latency_is_its_median(median, request):
    assert Latency(median).seconds(request) == median


def test_latencies_are_log_normal_and_depend_on_frame_role_attempt_and_seed():
    latency = Latency(0.05, 0.8, 7)
    drawn = [latency.seconds(ROOT._replace(frame=f"0.{n}")) for n in range(4000)]
    logs = [math.log(seconds / 0.05) for seconds in drawn]
    mean = sum(logs) / len(logs)
    assert abs(mean) < 0.05
    assert abs(math.sqrt(sum((log - mean) ** 2 for log in logs) / len(logs)) - 0.8) < 0.05
    others = [ROOT, ROOT._replace(role="verify"), ROOT._replace(attempt=2), ROOT._replace(frame="0.0")]
    seconds = [latency.seconds(request) for request in others] + [Latency(0.05, 0.8, 8).seconds(ROOT)]
    assert len(set(seconds)) == 5


async def test_no_thread_and_no_sleep_without_log_and_latency(monkeypatch):
    def never(*args):
        raise AssertionError(args)

    monkeypatch.setattr("nodes.models.scripted.asyncio.to_thread", never)
    monkeypatch.setattr("nodes.models.scripted.asyncio.sleep", never)
    assert (await build(default="ok").ainvoke("x")).text == "ok"


# The log


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_the_log_has_one_line_a_reply(tmp_path):
    model = from_text(tmp_path, "log: calls.jsonl\ndefault: ok\nlatency: 0.01")
    before = time.monotonic()
    ask(model, frame="0.1", role="aggregate", attempt=2)
    await model.ainvoke("hello")
    list(model.stream("other"))
    with asked_by():
        model.with_structured_output({"title": "T"}, include_raw=True).invoke("hello")
    entries = lines(tmp_path / "calls.jsonl")
    assert [(e["frame"], e["role"], e["attempt"]) for e in entries] == [
        ("0.1", "aggregate", 2), ("", "", 1), ("", "", 1), ("0", "solve", 1)
    ]  # fmt: skip
    assert set(entries[0]) == {"frame", "role", "attempt", "request", "started", "ended"}
    hashes = [entry["request"] for entry in entries]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    canonical = '{"messages":[{"content":"hello","role":"human"}]}'
    assert hashes[0] == hashlib.sha256(canonical.encode()).hexdigest()
    assert all(before < e["started"] <= e["ended"] - 0.01 for e in entries)


def test_the_log_leaves_out_faults_and_has_refusals(tmp_path):
    script = {
        "log": "calls.jsonl",
        "rules": [{"frame": name, "error": name} for name in ("server", "timeout", "refusal", "length")],
    }
    model = ScriptedChatModel.from_script(script, folder=tmp_path)
    for fault in ("server", "timeout"):
        with pytest.raises(httpx.HTTPError):
            ask(model, frame=fault)
    with pytest.raises(CallError):
        ask(model, frame="none")
    ask(model, frame="refusal")
    ask(model, frame="length")
    assert [entry["frame"] for entry in lines(tmp_path / "calls.jsonl")] == ["refusal", "length"]


async def test_a_line_is_written_before_the_reply(tmp_path):
    model = ScriptedChatModel.from_script({"log": "log", "default": "a b"}, folder=tmp_path)
    async for _ in model.astream("x"):
        assert len(lines(tmp_path / "log")) == 1

    async def one(n):
        with asked_by(frame=f"0.{n}"):
            await model.ainvoke("x")
            return f'"0.{n}"' in (tmp_path / "log").read_text()  # others may be half written

    assert all(await asyncio.gather(*map(one, range(50))))


def test_the_log_is_whole_under_threads(tmp_path):
    model = ScriptedChatModel.from_script({"log": "log", "default": "ok"}, folder=tmp_path)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: model.invoke("x" * n), range(300)))
    assert len(lines(tmp_path / "log")) == 300


async def test_the_log_is_written_off_the_event_loop(tmp_path, monkeypatch):
    import nodes.models.scripted as module

    threads, real = [], module._append
    monkeypatch.setattr(module, "_append", lambda *args: (threads.append(threading.current_thread()), real(*args)))
    model = ScriptedChatModel.from_script({"log": "log", "default": "ok"}, folder=tmp_path)
    await model.ainvoke("x")
    assert threads[-1] is not threading.main_thread()


def test_the_log_stays_where_it_was_when_the_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("{log: here.jsonl, default: ok}")
    (tmp_path / "sub").mkdir()
    model = ScriptedChatModel.from_file("s.yaml")
    monkeypatch.chdir(tmp_path / "sub")
    model.invoke("x")
    assert len(lines(tmp_path / "here.jsonl")) == 1


@pytest.mark.parametrize("log", ["missing/calls.jsonl", ".", "a\0b"])
def test_an_unwritable_log_is_wrong_use(tmp_path, log):
    with pytest.raises(UsageError, match="log") as caught:
        ScriptedChatModel.from_script({"log": log}, folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert repr(log)[1:-1] in str(caught.value) or log == "."


# Reading a file


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "off", "true", "42", "4.50", "1e3", "null", "~", "2024-01-31", "0x10"]
)
def test_a_plain_scalar_stays_text(tmp_path, word):
    model = from_text(tmp_path, f"rules:\n  - {{frame: '0', reply: {word}}}\ndefault: {word}")
    assert ask(model).text == word
    assert ask(model, frame="0.1").text == word


def test_other_values_keep_their_types(tmp_path):
    text = """
latency: {median: 1e-3, sigma: 0.1, seed: 3}
rules:
  - {frame: 0, depth: 0, attempt: 1, times: 1, latency: 0, json: {atomic: true, n: 1, day: 2024-01-31, t: 42}}
  - {task: 42, frame: 0.10, reply: ''}
  - {contains: on, reply: on}
"""
    model = from_text(tmp_path, text)
    assert json.loads(ask(model).text) == {"atomic": True, "n": 1, "day": "2024-01-31", "t": 42}
    assert ask(model, frame="0.10", task="room 42").text == ""
    assert ask(model, "come on").text == "on"
    assert model.script.latency == Latency(0.001, 0.1, 3)


def test_the_specifications_own_example(tmp_path):
    text = r"""
latency: 0.001
log: calls.jsonl
rules:
  - {role: decompose, depth: 0, reply: "- part one\n- part two"}
  - {role: verify, frame: '0\.1', attempt: 1, reply: "REJECT too short"}
  - {role: solve, frame: '0\.2', error: rate_limit, retry_after: 0.2, times: 2}   # also: timeout
  - {role: decompose, frame: '0\.2', json: {subtasks: [{id: a, task: "read", kind: search},
                                                             {id: b, task: "write", kind: write, depends_on: [a]}]}}
  - {role: solve, reply: "answer to {task}"}
default: "ok"
"""
    model = from_text(tmp_path, text)
    assert ask(model, role="decompose").text == "- part one\n- part two"
    assert ask(model, role="verify", frame="0.1").text == "REJECT too short"
    assert ask(model, role="verify", frame="0.1", attempt=2).text == "ACCEPT"
    for _ in range(2):
        with pytest.raises(httpx.HTTPStatusError):
            ask(model, frame="0.2", depth=1)
    assert ask(model, frame="0.2", task="T").text == "answer to T"
    assert ask(model, role="aggregate").text == "ok"
    assert len(json.loads(ask(model, role="decompose", frame="0.2", depth=1).text)["subtasks"]) == 2


def test_anchors_merges_and_a_byte_order_mark(tmp_path):
    text = "\ufeffrules:\n  - &r {frame: '0', reply: yes}\n  - {<<: *r, frame: '1'}\n  - *r\n"
    model = from_text(tmp_path, text)
    assert ask(model).text == "yes"
    assert ask(model, frame="1").text == "yes"


@pytest.mark.parametrize("name", ["script.json", "script.yaml", "script"])
@pytest.mark.parametrize("indent", [None, "\t"])
def test_json_files(tmp_path, name, indent):
    script = {"rules": [{"frame": "0", "json": {"atomic": True}}, {"depth": 1, "reply": 42}], "default": "\N{CACTUS}"}
    model = from_text(tmp_path, json.dumps(script, indent=indent), name)
    assert json.loads(ask(model).text) == {"atomic": True}
    assert ask(model, frame="1", depth=1).text == "42"
    assert ask(model, frame="1").text == "\N{CACTUS}"


@pytest.mark.parametrize(("reply", "text"), [(True, "true"), (42, "42"), (1.5, "1.5")])
def test_a_dict_may_hold_other_scalars_as_reply(reply, text):
    assert rules({"reply": reply}).invoke("x").text == text


# Bad scripts


BAD_RULES: list[tuple[Any, str]] = [
    ({"rolle": "solve", "reply": "x"}, r"rolle.*'role'"),
    ({"zzz": 1, "reply": "x"}, "zzz.*allowed"),
    ({"role": "solver", "reply": "x"}, "role.*'solve'"),
    ({"role": ["solve"], "reply": "x"}, "role.*text"),
    ({"frame": "(", "reply": "x"}, "frame.*regular"),
    ({"task": "[", "reply": "x"}, "task.*regular"),
    ({"contains": "*", "reply": "x"}, "contains.*regular"),
    ({"error": "ratelimit"}, "error.*rate_limit"),
    ({"depth": "1", "reply": "x"}, "depth.*whole"),
    ({"depth": -1, "reply": "x"}, "depth.*at least 0"),
    ({"depth": True, "reply": "x"}, "depth.*whole"),
    ({"attempt": 0, "reply": "x"}, "attempt.*at least 1"),
    ({"attempt": 1.5, "reply": "x"}, "attempt.*whole"),
    ({"times": -1, "reply": "x"}, "times.*at least 0"),
    ({"latency": -0.1, "reply": "x"}, "latency.*0 or more"),
    ({"latency": "fast", "reply": "x"}, "latency.*number"),
    ({"latency": {"sigma": 1}, "reply": "x"}, "latency: median.*missing"),
    ({"latency": {"median": -1}, "reply": "x"}, "latency: median.*0 or more"),
    ({"latency": {"median": 1, "sgima": 1}, "reply": "x"}, "sgima.*'sigma'"),
    ({"latency": {"median": 1, "seed": 1.5}, "reply": "x"}, "seed.*whole"),
    ({"latency": math.inf, "reply": "x"}, "latency"),
    ({"latency": 10**400, "reply": "x"}, "latency"),
    ({"retry_after": 1, "error": "server"}, "retry_after.*rate_limit"),
    ({"retry_after": 1, "reply": "x"}, "retry_after.*rate_limit"),
    ({"retry_after": -1, "error": "rate_limit"}, "retry_after.*0 or more"),
    ({"role": "solve"}, "reply.*json.*error"),
    ({}, "reply.*json.*error"),
    ({"reply": ["x"]}, "reply.*text"),
    ({"reply": None}, "reply.*text"),
    ({"json": {"x": {1, 2}}}, "json"),
    ({"json": math.nan}, "json"),
    ("solve", "mapping"),
    (None, "mapping"),
]


@pytest.mark.parametrize(("rule", "message"), BAD_RULES)
def test_a_bad_rule_is_named(rule, message):
    with pytest.raises(UsageError, match=message) as caught:
        check_script({"rules": [{"reply": "good"}, rule]}, Path(), "my.yaml")
    assert str(caught.value).startswith("my.yaml: rule 2: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([], "mapping"),
        (None, "mapping"),
        ("rules", "mapping"),
        ({"rule": []}, "rule.*'rules'"),
        ({"rules": {}}, "rules.*list"),
        ({"rules": None}, "rules.*list"),
        ({"latency": -1}, "latency.*0 or more"),
        ({"latency": None}, "latency"),
        ({"latency": [1]}, "latency"),
        ({"default": []}, "default.*text"),
        ({"log": []}, "log.*text"),
        ({"log": ""}, "log.*path"),
        ({1: 2}, "1.*unknown"),
    ],
)
def test_a_bad_script_is_named(script, message):
    with pytest.raises(UsageError, match=message) as caught:
        check_script(script, Path(), "my.yaml")
    assert str(caught.value).startswith("my.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"rules:\n  - {role: solve\ndefault: x", "s.yaml", "line 3.*not YAML"),
        (b"default: ok\nrules: [}", "s.yaml", "line 2.*not YAML"),
        (b"default: 'a\x00b'", "s.yaml", "line 1.*not YAML"),
        (b"default: ok\n---\ndefault: no", "s.yaml", "line 2.*not YAML"),
        (b"default: a\ndefault: b", "s.yaml", "line 2.*twice"),
        (b"rules:\n- reply: a\n  reply: b", "s.yaml", "line 3.*twice"),
        (b"rules:\n- json: !!python/object:os.system {}", "s.yaml", "line 2.*not YAML"),
        (b"rules:\n- json: !!timestamp 2024-99-99", "s.yaml", "value"),
        (b"? [a, b]\n: c", "s.yaml", "unknown key"),
        (b"[" * 5000, "s.yaml", "nested|not YAML"),
        (b"[" * 200000, "s.json", "nested|not JSON"),
        (b'{"default": "x"\n,,}', "s.json", "line 2.*not JSON"),
        (b"default: \xff", "s.yaml", "UTF-8"),
        (b"", "s.yaml", "mapping"),
        (b"just text", "s.yaml", "mapping"),
        (b"- reply: x", "s.yaml", "mapping"),
        (b"rules: nothing", "s.yaml", "rules.*list"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, name, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        ScriptedChatModel.from_file(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path, "nul\0.yaml"):
        with pytest.raises(UsageError, match="cannot be read"):
            ScriptedChatModel.from_file(path)
