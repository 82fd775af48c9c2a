"""Prompts: one template file a role, strict about undefined names.

They are read when this module is imported, so that no node touches a file on the event loop.
"""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_environment = Environment(
    loader=PackageLoader("nodes", "prompts"),
    undefined=StrictUndefined,
    auto_reload=False,  # else a template that includes another looks at its file each time
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # noqa: S701  # prompts are plain text, not HTML
)
_TEMPLATES = {
    name.removesuffix(".md.j2"): _environment.get_template(name) for name in _environment.list_templates(["j2"])
}


def render(role: str, **values: Any) -> str:
    """Return the prompt of ``role`` with ``values`` filled in.

    Raises:
        jinja2.UndefinedError: the template names a value that was not given.
    """
    return _TEMPLATES[role].render(**values).strip()
