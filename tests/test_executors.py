"""Executors that reach the world: search over documents and tools, programs in the sandbox, artifacts."""

import csv
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from frames.errors import UsageError
from graph import RecursiveTaskSolver, SolveResult, always_accept
from nodes.models.scripted import ScriptedChatModel
from tests.cli import Cactus
from tests.servers import OpenAI, OpenAIHandler, serve


def solver(*rules: dict[str, Any], store: Any = None, **settings: Any) -> RecursiveTaskSolver:
    model = ScriptedChatModel.from_script({"rules": list(rules), "default": "an answer"})
    defaults: dict[str, Any] = {"atomizer": lambda task, depth: depth > 0, "verifier": always_accept()}
    return RecursiveTaskSolver.roma(model, store=store, **defaults | settings)


def planned(*parts: tuple[str, str, list[str]]) -> dict[str, Any]:
    """Return the rule that splits a task into parts of a kind, a text, and the places of those they depend on."""
    return {"role": "decompose", "json": {"subtasks": split(*parts)("", 0)}}


def split(*parts: tuple[str, str, list[str]]) -> Any:
    plan = [
        {"id": str(n), "task": task, "kind": kind, "depends_on": needs} for n, (kind, task, needs) in enumerate(parts)
    ]
    return lambda task, depth: plan


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rates.md").write_text("# Rates\n\nThe limit is 60 requests a minute for each key.")
    (folder / "auth.html").write_text("<h1>Auth</h1><p>Keys rotate every 90 days.</p><script>no()</script>")
    (folder / "other.txt").write_text("Cats sleep a lot.")
    return folder


# --- search --------------------------------------------------------------------------------------------------


def test_a_search_sees_what_fits_and_its_answer_names_it(documents: Path) -> None:
    known = {
        "role": "solve",
        "contains": r"(?s)\[source: rates.md\].*60 requests",
        "reply": "60 a minute [source: rates.md]",
    }
    result = solver(known, docs=str(documents), max_depth=0).solve("What is the limit of requests?")
    assert result.output == "60 a minute [source: rates.md]"


def test_an_answer_that_names_no_source_gets_those_that_were_read(documents: Path) -> None:
    result = solver({"role": "solve", "reply": "60 a minute"}, docs=str(documents), max_depth=0).solve(
        "limit of requests?"
    )
    assert result.output == "60 a minute\n\nSources read: [source: rates.md]"


def test_a_model_without_tools_of_its_own_calls_them_in_words(documents: Path) -> None:
    action = 'I should look.\nAction: search_documents\nAction Input: {"query": "rotate keys",}\nObservation: made up'
    rules = [
        {
            "role": "solve",
            "contains": r"(?s)Observation: \[source: auth.*90 days",
            "reply": "Final Answer: every 90 days [source: auth.html]",
        },
        {"role": "solve", "reply": action},
    ]
    result = solver(*rules, docs=str(documents), max_depth=0).solve("How often is it changed?")
    assert result.output == "every 90 days [source: auth.html]"
    assert result.usage["calls"] == 2


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("Action: no_such_tool\nAction Input: {}", "ERROR: there is no tool 'no_such_tool'"),
        ("Action: broken\nAction Input: x", "ERROR: .*bang"),
        ("Action: broken", "ERROR"),
        ('Action: broken\nAction Input: {"wrong": 1}', "ERROR"),
    ],
)
def test_a_tools_failure_is_told_as_one_and_never_an_answer(action: str, said: str) -> None:
    @tool
    def broken(x: str) -> str:
        """Break."""
        raise ValueError("bang")

    rules = [
        {"role": "solve", "contains": f"Observation: {said}", "reply": "It could not be found."},
        {"role": "solve", "reply": action},
    ]
    model = ScriptedChatModel.from_script({"rules": rules})
    made = RecursiveTaskSolver.roma(model, tools=[broken], verifier=always_accept(), max_depth=0)
    assert made.solve("t").output == "It could not be found."


def test_a_search_that_calls_a_tool_in_its_last_reply_has_no_answer(documents: Path) -> None:
    again = {"role": "solve", "reply": "Action: search_documents\nAction Input: cats"}
    result = solver(again, docs=str(documents), max_depth=0, max_steps=2).solve("t")
    assert result.gaps == ["0: solve: no answer within max_steps = 2: the last reply calls search_documents again"]


def test_a_search_that_never_stops_answers_at_its_last_step(documents: Path) -> None:
    rules = [
        {"role": "solve", "contains": "This is your last reply", "reply": "enough"},
        {"role": "solve", "reply": "Action: search_documents\nAction Input: cats"},
    ]
    result = solver(*rules, docs=str(documents), max_depth=0, max_steps=4).solve("t")
    assert (result.output or "").startswith("enough")
    assert result.usage["calls"] == 4


class Calling(GenericFakeChatModel):
    """A chat model that calls tools by its own means."""

    given: list[Any] = []  # noqa: RUF012  # set for each test
    seen: list[list[BaseMessage]] = []  # noqa: RUF012

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.given.extend(tool.name for tool in tools)
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


async def test_a_model_with_tools_of_its_own_calls_them_so(documents: Path) -> None:
    call = {"name": "search_documents", "args": {"query": "keys rotate"}, "id": "1", "type": "tool_call"}
    replies = [AIMessage("", tool_calls=[call]), AIMessage("90 days [source: auth.html]")]
    model = Calling(messages=iter(replies), given=[], seen=[])
    made = RecursiveTaskSolver.roma(model, docs=str(documents), verifier=always_accept(), max_depth=0)
    events = [event async for event in made.astream("How often do keys rotate?")]
    assert events[-1]["result"]["output"] == "90 days [source: auth.html]"
    assert "search_documents" in model.given
    answered = model.seen[1][-1]
    assert isinstance(answered, ToolMessage)
    assert "90 days" in str(answered.content)
    used = [event for event in events if event["event"] == "tool"]
    assert [(event["tool"], event["ok"], event["frame"]) for event in used] == [("search_documents", True, "0")]


def test_tools_documents_and_files_that_are_not_there_are_refused_before_anything_is_spent(cactus: Cactus) -> None:
    model = cactus.script(default="a", log="calls.jsonl")
    (cactus.folder / "mine.py").write_text('def read_artifact(id: str) -> str:\n    """Read."""\n    return id\n')
    for option, said in [
        (["--docs", "nowhere"], "nowhere"),
        (["--tool", "no.such:thing"], "no.such"),
        (["--attach", "gone.csv"], "gone.csv"),
        (["--tool", "mine:read_artifact"], "two tools are called 'read_artifact'"),
        (["-c", "mcp_servers={x: {command: /no/such}}"], "x"),
    ]:
        done = cactus("solve", "t", "--model", model, *option)
        assert done.status == 2, done.err
        assert said in done.err
        assert "Traceback" not in done.err
    assert (cactus.folder / "calls.jsonl").read_text() == ""


def test_a_plain_function_is_a_tool() -> None:
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"rain in {city}"

    model = ScriptedChatModel.from_script({"rules": [
        {"role": "solve", "contains": "Observation: rain in Rome", "reply": "rain"},
        {"role": "solve", "reply": "Action: weather\nAction Input: Rome"},
    ]})  # fmt: skip
    made = RecursiveTaskSolver.roma(model, tools=[weather], verifier=always_accept(), max_depth=0)
    assert made.solve("t").output == "rain"


class Toolless(OpenAIHandler):
    """Refuses tools, as endpoints of small models do."""

    def reply(self, state: Any, request: dict[str, Any], behaviour: dict[str, Any]) -> None:
        if request.get("tools"):
            self.answer(400, b'{"error": {"message": "tools are not supported"}}')
            return
        said = "\n".join(str(message["content"]) for message in request["messages"])
        look = 'Action: search_documents\nAction Input: {"query": "keys rotate"}'
        content = "90 days [source: auth.html]" if "Observation: " in said else look
        super().reply(state, request, {"content": content})


def test_an_endpoint_that_takes_no_tools_is_told_of_them_in_words(
    documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = OpenAI()
    with serve(Toolless, state) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        made = RecursiveTaskSolver.roma("openai:any", docs=str(documents), verifier=always_accept(), max_depth=0)
        result = made.solve("How often do keys rotate?")
    assert result.output == "90 days [source: auth.html]"
    assert result.usage["calls"] == 2


# --- code ----------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "sales.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("day", "sales"), *((day, (day * 37) % 101) for day in range(1, 101))])
    return path


MEDIAN = """Let me compute it.
```python
import csv
with open('sales.csv') as file:
    values = sorted(int(row['sales']) for row in csv.DictReader(file))
middle = len(values) // 2
print('median', (values[middle - 1] + values[middle]) / 2)
```"""


def test_the_sandboxs_output_decides_a_code_task_over_a_table(cactus: Cactus, table: Path) -> None:
    median = statistics.median((day * 37) % 101 for day in range(1, 101))
    both = f"(?s)It is {median}.*half are below"
    rules = [
        planned(("code", "Compute the median of the sales", []), ("write", "Say what it means", ["0"])),
        {"role": "atomize", "depth": 1, "reply": "yes"},
        {"role": "solve", "frame": r"0\.0", "contains": f"printed:\nmedian {median}", "reply": f"It is {median}."},
        {"role": "solve", "frame": r"0\.0", "contains": "sales.csv.*\n +day,sales", "reply": MEDIAN},
        {"role": "solve", "frame": r"0\.1", "contains": f"It is {median}", "reply": "half are below"},
        {"role": "aggregate", "contains": both, "reply": f"{median}: half are below"},
    ]
    done = cactus("solve", "Analyse", "--json", "--attach", str(table), "--model", cactus.script(*rules))
    assert done.document["output"] == f"{median}: half are below"


def test_a_program_that_fails_is_mended() -> None:
    rules = [
        {"role": "solve", "contains": "printed:\n42", "reply": "It is 42."},
        {"role": "solve", "contains": "It failed: .*ZeroDivisionError", "reply": "```python\nprint(6 * 7)\n```"},
        {"role": "solve", "reply": "```python\n1 / 0\n```"},
    ]
    result = solver(*rules, decomposer=split(("code", "x", []), ("code", "y", []))).solve("t")
    assert {trace.detail for trace in result.traces if trace.type == "SOLVED"} == {"It is 42."}


def test_the_same_program_again_is_done_and_its_output_is_the_answer() -> None:
    result = solver(
        {"role": "solve", "reply": "```python\nprint(2**70)\n```"},
        decomposer=split(("code", "x", []), ("code", "y", [])),
    ).solve("t")
    assert {trace.detail for trace in result.traces if trace.type == "SOLVED"} == {str(2**70)}


def test_a_task_whose_programs_never_work_fails_with_the_reason() -> None:
    numbers = iter(range(99))

    def model(prompt: str) -> str:
        return (
            "combined" if "Combine" in prompt else f"```python\nboom{next(numbers)}\n```" if "Python" in prompt else "x"
        )

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 0,
        decomposer=split(("code", "x", []), ("think", "y", [])),
        verifier=always_accept(),
        max_steps=2,
    )
    result = made.solve("t")
    assert result.output == "combined"
    assert "0.0: solve: no answer within max_steps = 2: its last program failed: NameError" in result.gaps[0]


# --- artifacts -----------------------------------------------------------------------------------------------


def test_a_file_that_a_program_writes_is_an_artifact_that_the_next_one_reads(cactus: Cactus) -> None:
    total = "```python\nprint(sum(int(n) for n in open('t.csv').read().split()[1:]))\n```"
    rules = [
        planned(("code", "Make the table", []), ("code", "Sum it", ["0"])),
        {"role": "atomize", "depth": 1, "reply": "yes"},
        {"role": "solve", "frame": r"0\.0", "contains": "Files written: t.csv", "reply": "It is made."},
        {"role": "solve", "frame": r"0\.0", "reply": "```python\nopen('t.csv', 'w').write('ü\\n4\\n5\\n')\n```"},
        {"role": "solve", "frame": r"0\.1", "contains": "printed:\n9", "reply": "The sum is 9."},
        {"role": "solve", "frame": r"0\.1", "contains": "artifact:[0-9a-f]{16} t.csv", "reply": total},
        {"role": "aggregate", "contains": "The sum is 9", "reply": "9"},
    ]
    done = cactus("solve", "t", "--json", "--run-id", "r", "--model", cactus.script(*rules))
    assert done.document["output"] == "9"
    shown = cactus("show", "r", "--json").document["artifacts"]
    assert [(artifact["name"], artifact["frame"], artifact["size"]) for artifact in shown] == [("t.csv", "0.0", 7)]
    assert cactus("show", "r", "--artifact", shown[0]["id"]).out == "ü\n4\n5\n"
    assert "t.csv" in cactus("show", "r").out
    wrong = cactus("show", "r", "--artifact", "0" * 16)
    assert (wrong.status, shown[0]["id"] in wrong.err) == (2, True)


def test_a_large_result_is_kept_outside_the_prompts_and_whole_where_it_is_combined(where: str, cactus: Cactus) -> None:
    large = "BEGIN " + "x" * 30_000 + " END"
    start = "(?s)BEGIN.*the whole result is artifact:"
    rules = [
        planned(("think", "one", []), ("think", "two", ["0"]), ("think", "three", [])),
        {"role": "atomize", "depth": 1, "reply": "yes"},
        {"role": "solve", "frame": r"0\.0", "reply": large},
        {"role": "solve", "frame": r"0\.1", "contains": "END", "reply": "saw it whole"},
        {"role": "solve", "frame": r"0\.1", "contains": start, "reply": "saw its beginning"},
        {"role": "solve", "reply": "small"},
        {"role": "aggregate", "contains": "(?s)END.*saw its beginning", "reply": "all there"},
    ]
    done = cactus("solve", "t", "--json", "--run-id", "r", "--db", where, "--model", cactus.script(*rules))
    assert done.document["output"] == "all there"
    artifact = cactus("show", "r", "--json", "--db", where).document["artifacts"][0]
    assert cactus("show", "r", "--artifact", artifact["id"], "--db", where).out == large


def test_many_large_answers_at_once_lock_nothing(cactus: Cactus) -> None:
    plan = planned(*(("think", f"{{task}} {place}", []) for place in range(12)))
    rules = [plan, {"role": "solve", "reply": "{task} " + "x" * 20_000}]
    model = cactus.script(*rules, default="combined")
    for run in range(3):
        done = cactus(
            "solve", "t", "--json", "--max-depth=1", "--max-subtasks=12", f"--run-id=r{run}", "--model", model
        )
        assert (done.status, done.document["gaps"]) == (0, [])
    assert len(cactus("show", "r0", "--json").document["artifacts"]) == 12


async def test_the_same_content_is_kept_once_and_bytes_as_they_are() -> None:
    from nodes.artifacts import Artifacts

    artifacts = Artifacts(InMemoryStore(), "run.1")
    first = await artifacts.put(b"\x00\xff", "a.bin", "0.1")
    again = await artifacts.put(b"\x00\xff", "b.bin", "0.2")
    assert first == again
    stored = await artifacts.get(first["id"])
    assert stored is not None
    assert (stored.content, stored.artifact["frame"], stored.artifact["preview"]) == (b"\x00\xff", "0.1", "")
    assert await Artifacts(InMemoryStore(), "other").get(first["id"]) is None
    with pytest.raises(UsageError, match="compile the graph with a store"):
        await Artifacts(None, "x").put(b"", "x", "0")


# --- the cap and the pauses of a provider --------------------------------------------------------------------


class Counting(OpenAIHandler):
    """Counts requests at work, and answers the third to the eighth with 429 and Retry-After."""

    lock = threading.Lock()

    def do_POST(self) -> None:  # noqa: N802  # the standard library's name
        state: Any = self.server.state  # type: ignore[attr-defined]
        with self.lock:
            state.flying += 1
            state.most = max(state.most, state.flying)
            state.asked += 1
            number = state.asked
        time.sleep(0.05)
        if state.limited and 3 <= number <= 8:
            state.behaviours.insert(0, {"status": 429, "headers": {"retry-after": "1"}})
            with self.lock:
                state.refused.append(time.monotonic())
        try:
            super().do_POST()
        finally:
            with self.lock:
                state.flying -= 1


class Counted(OpenAI):
    flying = most = asked = 0

    def __init__(self, *, limited: bool = False) -> None:
        super().__init__()
        self.limited, self.refused = limited, list[float]()


def fan_out(monkeypatch: pytest.MonkeyPatch, state: Counted, **settings: Any) -> SolveResult:
    with serve(Counting, state) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        made = RecursiveTaskSolver.roma(
            "openai:any",
            atomizer=lambda task, depth: depth > 1,
            decomposer=lambda task, depth: [f"{task} {part}" for part in range(4)],
            verifier=always_accept(),
            **settings,
        )
        return made.solve("t")


def test_case_12_a_burst_of_429_is_one_shared_pause_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Counted(limited=True)
    result = fan_out(monkeypatch, state)
    assert (result.success, result.gaps) == (True, [])
    assert len(state.refused) == 6
    pause = [at for at in state.times if state.refused[-1] + 0.1 < at < state.refused[-1] + 0.9]
    assert pause == []  # nobody asks while one of them was told to wait
    assert result.usage["calls"] == 16 + 5


@pytest.mark.parametrize("parallel", [1, 3])
def test_case_13_requests_at_an_endpoint_never_exceed_the_cap(monkeypatch: pytest.MonkeyPatch, parallel: int) -> None:
    state = Counted()
    assert fan_out(monkeypatch, state, parallel=parallel).success
    assert state.most == parallel


FOUR = planned(*(("think", f"{{task}} {place}", []) for place in range(4)))


def most_at_once(log: Path) -> int:
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return max(sum(one["started"] <= call["started"] < one["ended"] for one in calls) for call in calls)


@pytest.mark.parametrize("way", ["option", "file", "environment"])
def test_case_13_the_cap_holds_wherever_it_is_set(cactus: Cactus, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    model = cactus.script(FOUR, default="x", latency=0.05, log="calls.jsonl")
    (cactus.folder / "c.yaml").write_text("parallel: 2\n")
    if way == "environment":
        monkeypatch.setenv("CACTUS_PARALLEL", "2")
    given = {"option": ["--parallel", "2"], "file": ["--config", "c.yaml"], "environment": []}[way]
    assert cactus("solve", "t", "--max-depth", "2", "--model", model, *given).status == 0
    assert most_at_once(cactus.folder / "calls.jsonl") == 2


async def test_case_13_and_where_a_server_builds_the_context_from_a_form(tmp_path: Path) -> None:
    from graph import graph

    script = {"rules": [FOUR], "default": "x", "latency": 0.02, "log": "calls.jsonl"}
    (tmp_path / "s.yaml").write_text(json.dumps(script))
    form = {"profile": "roma", "parallel": 3, "max_depth": 2, "model": f"scripted:{tmp_path / 's.yaml'}"}
    ended = await graph.ainvoke({"task": "t"}, context=form)  # type: ignore[arg-type]
    assert ended["success"]
    assert most_at_once(tmp_path / "calls.jsonl") == 3
