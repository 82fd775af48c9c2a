"""The LangGraph apps that a server shows, one a profile; ``langgraph.json`` names them."""

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from graph.build import Solver, make_graph
from nodes.context import Context
from nodes.settings import PROFILE_DEFAULTS


def form(profile: str) -> type[Context]:
    """Return the settings of ``profile`` alone: its defaults are theirs, and what is drawn from them shows it."""
    fields = {name: _field(name, default) for name, default in PROFILE_DEFAULTS[profile].items()}
    fields["profile"] = _field("profile", profile, Literal[profile], json_schema_extra={"enum": [profile]})
    return create_model(profile.title(), __base__=Context, __doc__=f"The settings of a {profile} run.", **fields)


def app(profile: str) -> Solver:
    """Return the machine as the app of ``profile``, which is its name."""
    return make_graph(context=form(profile).checked(), name=profile)


def _field(name: str, default: Any, choice: Any = None, **more: Any) -> Any:
    """Return the setting ``name`` with another default, and only one ``choice``: its type and default, for pydantic."""
    known = Context.model_fields[name].asdict()
    given = {key: value for key, value in known["attributes"].items() if value is not None} | more
    described = Field(**given | {"default": default})
    type_ = choice or known["annotation"]
    return Annotated[type_, *known["metadata"], described], default


classic = app("classic")
roma = app("roma")
adaptive = app("adaptive")
agent = app("agent")
