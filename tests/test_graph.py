"""The LangGraph app: its schemas, its drawing, a run with plain settings, a second task on the same thread."""

from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from frames.errors import UsageError
from graph import graph, make_graph
from graph.routes import AFTER
from tests.scripts import every_kind


def script(folder: Path) -> str:
    path = folder / "s.yaml"
    path.write_text(
        'log: calls.jsonl\nrules: [{role: decompose, depth: 0, reply: "- a\\n- b"}]\ndefault: "re: {task}"\n'
    )
    return f"scripted:{path}"


async def test_a_run_with_plain_settings(tmp_path: Path) -> None:
    output = await graph.ainvoke({"task": "t"}, context={"model": script(tmp_path), "max_depth": 1})
    assert set(output) >= {"success", "output", "status", "traces", "gaps", "frames", "duration_ms"}
    assert (output["success"], output["output"]) == (True, "re: t")


async def test_a_run_with_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="max_retries"):
        await graph.ainvoke({"task": "t"}, context={"max_retries": 0})


@pytest.mark.parametrize(
    ("given", "said"), [({"task": " "}, "the task is empty"), ({"task": 5}, "not int"), ({}, "not NoneType")]
)
async def test_a_run_without_a_task_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await make_graph(InMemorySaver()).ainvoke(given, {"configurable": {"thread_id": "x"}})


async def test_a_second_task_on_the_same_thread_starts_afresh(tmp_path: Path) -> None:
    app = make_graph(InMemorySaver())
    config: Any = {"configurable": {"thread_id": "x"}}
    context: Any = {"model": script(tmp_path), "max_depth": 1}
    outputs = [await app.ainvoke({"task": task}, config, context=context) for task in ("one", "one", "two")]
    assert [len(output["traces"]) for output in outputs] == [7, 7, 7]
    assert [output["output"] for output in outputs] == ["re: one", "re: one", "re: two"]


async def test_a_new_task_on_an_unfinished_thread_starts_afresh(tmp_path: Path) -> None:
    app = make_graph(InMemorySaver())
    config: Any = {"configurable": {"thread_id": "x"}}
    context: Any = {"model": script(tmp_path), "max_depth": 1}
    await app.ainvoke({"task": "one"}, config, context=context, interrupt_after=["solve"])
    output = await app.ainvoke({"task": "two"}, config, context=context)
    assert (output["output"], output["frames"], len(output["traces"])) == ("re: two", 3, 7)


def test_the_drawing_shows_the_nodes_that_can_follow_each() -> None:
    edges = {(edge.source, edge.target) for edge in graph.get_graph().edges}
    assert edges == {("__start__", "atomize"), *((name, after) for name in AFTER for after in AFTER[name])}


def test_the_form_has_descriptions_and_ranges() -> None:
    schema = graph.get_context_jsonschema()
    assert schema
    fields: dict[str, Any] = schema["properties"]
    assert all(field.get("description") for field in fields.values())
    assert fields["max_retries"]["minimum"] == 1
    assert list(graph.get_input_jsonschema()["properties"]) == ["task"]


async def test_no_node_blocks_the_event_loop(tmp_path: Path) -> None:
    context: Any = {"model": script(tmp_path), "atomizer": "llm", "verifier": "llm", "max_depth": 1}
    blocker = BlockBuster()
    blocker.activate()
    try:
        output = await make_graph(InMemorySaver()).ainvoke(
            {"task": "t"}, {"configurable": {"thread_id": "x"}}, context=context
        )
    finally:
        blocker.deactivate()
    assert output["status"] == "succeeded", output["gaps"]


async def test_no_node_of_roma_does_with_any_kind_of_task(tmp_path: Path) -> None:
    context: Any = {"profile": "roma", **every_kind(tmp_path)}
    app, config = make_graph(InMemorySaver(), store=InMemoryStore()), {"configurable": {"thread_id": "x"}}
    blocker = BlockBuster()
    blocker.activate()
    try:
        await app.ainvoke({"task": "t"}, config, context=context)  # type: ignore[arg-type]
        output = await app.ainvoke(Command(resume="approve"), config, context=context)  # type: ignore[arg-type]
    finally:
        blocker.deactivate()
    assert (output["status"], output["gaps"]) == ("succeeded", [])
    assert sorted(t["frame"] for t in output["traces"] if t["type"] == "SOLVED") == ["0.0", "0.1", "0.1", "0.2", "0.3"]
