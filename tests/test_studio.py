"""What LangGraph Studio draws: the form of each profile's settings, the graph, the list of graphs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from graph.routes import AFTER
from nodes.settings import PROFILE_DEFAULTS, Settings
from studio import graphs
from studio.commands.dev import CONFIG

GOLDEN = Path(__file__).parent / "golden"
PROFILES = list(PROFILE_DEFAULTS)


def fields(profile: str) -> dict[str, Any]:
    return getattr(graphs, profile).get_context_jsonschema()["properties"]


def choice(field: dict[str, Any]) -> bool:
    return "enum" in field or field.get("type") == "boolean"


def bounded(field: dict[str, Any]) -> bool:
    kinds = [field, *field.get("anyOf", [])]
    return any({"minimum", "exclusiveMinimum", "pattern"} & set(kind) for kind in kinds)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_form_says_what_each_setting_is_and_what_it_is_without_being_set(profile: str) -> None:
    defaults = {**Settings().model_dump(), **PROFILE_DEFAULTS[profile], "profile": profile}
    form = fields(profile)
    assert {name: field["default"] for name, field in form.items()} == defaults
    assert list(form) == list(Settings.model_fields)
    for name, field in form.items():
        assert field["description"].endswith("."), name
        assert field["title"], name


@pytest.mark.parametrize("profile", PROFILES)
def test_the_form_has_choices_and_ranges(profile: str) -> None:
    form = fields(profile)
    assert form["profile"]["enum"] == [profile]
    assert form["on_failure"]["enum"] == ["fail", "partial"]
    assert form["reuse"]["enum"] == ["off", "run", "all"]
    assert form["max_retries"]["minimum"] == 1
    assert {"minimum": 1, "type": "integer"} in form["max_calls"]["anyOf"]
    free = {name for name, field in form.items() if not choice(field) and not bounded(field)}
    assert free == {"model", "role_models", "prices", "docs", "attach", "tools", "mcp_servers", "root", "agents"}


def test_the_nodes_that_settings_belong_to_are_in_the_drawing() -> None:
    named = {node for field in fields("roma").values() for node in field.get("langgraph_nodes", [])}
    assert named == {"atomize", "investigate", "decompose", "aggregate", "verify", "retry", "approve", "act"}
    assert named < set(AFTER)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_form_takes_what_it_says_and_nothing_else(profile: str) -> None:
    form = graphs.form(profile)
    assert form().model_dump() == form(profile=profile).model_dump()  # type: ignore[call-arg]
    other = next(name for name in PROFILES if name != profile)
    for wrong in ({"profile": other}, {"max_retries": 0}, {"verifier": "no"}, {"max_subtasks": 0}, {"unknown": 1}):
        with pytest.raises(ValidationError):
            form(**wrong)


def test_there_is_a_graph_for_each_profile_and_it_has_its_name() -> None:
    named = json.loads(CONFIG.read_text(encoding="utf-8"))["graphs"]
    assert sorted(named) == sorted(PROFILES)
    for profile, graph in named.items():
        module, _, name = graph["path"].partition(":")
        assert (module, name) == ("studio.graphs", profile)
        assert getattr(graphs, name).name == profile
        assert graph["description"]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_starts_from_a_task_and_ends_with_a_result(profile: str) -> None:
    graph = getattr(graphs, profile)
    assert list(graph.get_input_jsonschema()["properties"]) == ["task"]
    ended = ["success", "output", "status", "partial", "gaps", "traces", "duration_ms", "frames"]
    assert list(graph.get_output_jsonschema()["properties"]) == ended


def test_the_drawing_is_as_it_was() -> None:
    drawn = {profile: getattr(graphs, profile).get_graph(xray=True).draw_mermaid() for profile in PROFILES}
    assert len(set(drawn.values())) == 1
    path, mermaid = GOLDEN / "graph.mmd", drawn["roma"]
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(mermaid, encoding="utf-8")
    assert mermaid == path.read_text(encoding="utf-8")
    for name, after in AFTER.items():
        assert all(f"\t{name} -.-> {following};" in mermaid for following in after), name
