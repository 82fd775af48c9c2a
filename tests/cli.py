"""Helpers: the command line called in-process, and scripts written to a folder."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from studio.main import main


@dataclass
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


class Cactus:
    """Calls ``cactus`` in a folder of its own, with a database there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self._monkeypatch = folder, capsys, monkeypatch
        for name in ("OPENAI_API_KEY", "CACTUS_MODEL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("CACTUS_DB", str(folder / "runs.db"))
        monkeypatch.chdir(folder)

    def __call__(self, *args: str) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["cactus", *args])
        self._capsys.readouterr()
        status: Any = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        out, err = self._capsys.readouterr()
        return Outcome(status or 0, out, err)

    def script(self, *rules: dict[str, Any], **top: Any) -> str:
        """Write a script and return the name of its model."""
        path = self.folder / "script.yaml"
        path.write_text(yaml.safe_dump({"rules": list(rules), **top}), encoding="utf-8")
        return f"scripted:{path}"
