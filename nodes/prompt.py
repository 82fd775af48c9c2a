"""Prompts: one template file a role, strict about undefined names."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def render(role: str, **values: Any) -> str:
    """Return the prompt of ``role`` with ``values`` filled in.

    Raises:
        jinja2.UndefinedError: the template names a value that was not given.
    """
    return _template(role).render(**values).strip()


@cache
def _template(role: str) -> Template:
    environment = Environment(
        loader=PackageLoader("nodes", "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701  # prompts are plain text, not HTML
    )
    return environment.get_template(f"{role}.md.j2")
