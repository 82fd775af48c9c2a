"""The report's page: template, style sheet, scripts and data put together into one file."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from studio.report.data import data_of

MARK = '<meta name="generator" content="cactus report">'
"""What tells a report from another file; it stands among the first 1,000 characters."""

SCRIPTS = (
    "text",
    "model",
    "critical",
    "data",
    "tree",
    "rows",
    "graph",
    "frame",
    "overview",
    "axis",
    "timeline",
    "paint",
    "steps",
    "print",
    "main",
)
"""The page's scripts, in the order in which they are put together."""


def page(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the report of a run's events: a whole HTML document that loads nothing and may load nothing.

    Raises:
        UsageError: the events are of a later release.
    """
    data = data_of(events)
    style = _asset("report.css")
    script = f'"use strict";\n(() => {{\n{"".join(_asset(f"{name}.js") for name in SCRIPTS)}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    chunks = "".join(
        f'<script type="text/plain" id="chunk{place}">{text}</script>\n' for place, text in enumerate(data.chunks)
    )
    parts = {"MARK": MARK, "POLICY": policy, "STYLE": style, "SCRIPT": script, "INDEX": data.index, "CHUNKS": chunks}
    # one pass over the template: no part is looked at for the marks of another
    head, *rest = _asset("page.html").split("{{")
    return head + "".join(parts[name] + text for name, _, text in (piece.partition("}}") for piece in rest))


def _asset(name: str) -> str:
    return (files("studio.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
