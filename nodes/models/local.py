"""The embedded model ``local``: a llama.cpp server in a child process, spoken to like any endpoint."""

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import weakref
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from langchain_core.language_models import BaseChatModel

from frames.errors import CactusError, UsageError
from nodes.models.weights import QWEN, Report, Weights, ensure_weights, find_weights

INSTALL = "pip install 'cactus-solver[local]'"

_PACKAGES = ("xllamacpp", "langchain_openai", "huggingface_hub")
_START_SECONDS = 180.0
_STOP_SECONDS = 5.0
_MOST_THREADS = 8

_ERROR_LINE = re.compile(r"[\d.]+ E ")


class LocalServer:
    """The embedded model. Nothing is fetched or started before ``start`` or ``chat_model``.

    ``report`` is told (bytes done, bytes in all) while weights are fetched. ``context`` is in tokens, shared
    by ``parallel`` slots; ``threads`` defaults to the cores at hand; ``max_tokens`` caps a reply. Safe to use
    from several threads; ``close`` ends the child, and so does the end of this process, however it comes.
    """

    def __init__(
        self,
        report: Report | None = None,
        *,
        context: int = 8192,
        parallel: int = 1,
        threads: int | None = None,
        max_tokens: int = 512,
        seed: int = 0,
        weights: Weights = QWEN,
    ) -> None:
        self._report = report
        self._arguments = {"context": context, "parallel": parallel, "threads": threads or _threads()}
        self._max_tokens = max_tokens
        self._seed = seed
        self._weights = weights
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._child: _Child | None = None

    @property
    def api_key(self) -> str:
        """The key that the running server asks for; empty where none runs."""
        return self._child.key if self._child else ""

    def start(self) -> str:
        """Return the server's base URL, started first where it is not running. Blocks, for minutes at worst.

        Raises:
            UsageError: a package, a library or the weights are missing; says what to do.
            CactusError: the server ended before it answered, or ``close`` was called meanwhile.
        """
        with self._lock:
            if self._child and self._child.url and self._child.process.poll() is None:
                return self._child.url
            self._end_child()
            self._stopping.clear()
            _check()
            path = ensure_weights(self._progress, self._weights)
            self._child = _Child(path, self._arguments)
            weakref.finalize(self, _Child.end, self._child)
            self._raise_if_stopping()
            return self._child.wait()

    def chat_model(self) -> BaseChatModel:
        """Return a client of the server, started where it is not running. Any event loop may use it.

        Raises:
            UsageError, CactusError: as ``start``.
        """
        return _client(self.start(), self.api_key, self._max_tokens, self._seed)

    def close(self) -> None:
        """End the child process, or the fetching or starting that another thread is at; twice is fine."""
        self._stopping.set()
        if child := self._child:
            child.end()
        with self._lock:
            self._end_child()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _progress(self, done: int, total: int) -> None:
        self._raise_if_stopping()
        if self._report:
            self._report(done, total)

    def _raise_if_stopping(self) -> None:
        if self._stopping.is_set():
            raise CactusError("the embedded model was closed before it was ready")

    def _end_child(self) -> None:
        if self._child:
            self._child.end()
        self._child = None


def available() -> bool:
    """Whether the extra ``local`` is installed."""
    return not _missing_packages()


def problems() -> list[str]:
    """Return what keeps the embedded model from working, each with its remedy; missing weights come last."""
    found = _faults()
    try:
        if not find_weights():
            found.append(f"weights not here yet: {QWEN.size / 1e9:.1f} GB are fetched on first use")
    except UsageError as error:
        found.append(str(error))
    return found


def _check() -> None:
    if found := _faults():
        raise UsageError(f"the embedded model cannot run: {'; '.join(found)}")


def _faults() -> list[str]:
    found: list[str] = []
    if missing := _missing_packages():
        found.append(f"{', '.join(missing)} not installed: {INSTALL}")
    if not _has_avx2():
        found.append("this processor has no AVX2, which it needs: use another model (--model PROVIDER:NAME)")
    if not _has_gomp():
        found.append("the system library libgomp is missing: apt-get install libgomp1")
    return found


def _missing_packages() -> list[str]:
    return [name for name in _PACKAGES if find_spec(name) is None]


def _has_avx2() -> bool:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return True  # not Linux: not known, and the server says so itself
    flags = [line for line in text.splitlines() if line.startswith("flags")]
    return not flags or "avx2" in flags[0].split()


def _has_gomp() -> bool:
    if sys.platform != "linux":
        return True
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return False
    return True


def _threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def _client(url: str, key: str, max_tokens: int, seed: int) -> BaseChatModel:
    from langchain_openai import ChatOpenAI  # slow to import, and an extra
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
    from pydantic import SecretStr

    options: Any = {
        "base_url": url,
        "api_key": SecretStr(key),
        "model": "local",
        "temperature": 0,
        "seed": seed,
        "max_tokens": max_tokens,
        "max_retries": 0,
        "stream_usage": True,
        "extra_body": {"cache_prompt": False, "dry_multiplier": 0.8},  # without dry, small models loop
        "default_headers": {"Connection": "close"},  # none is kept for another event loop
        "http_client": DefaultHttpxClient(trust_env=False, verify=False),  # loopback: no proxy, no certificates
        "http_async_client": DefaultAsyncHttpxClient(trust_env=False, verify=False),
    }
    return ChatOpenAI(**options)


class _Child:
    """The server's process. Its standard input stays open as long as this process lives."""

    def __init__(self, model: Path, arguments: dict[str, int]) -> None:
        self.url: str | None = None
        self.key = ""
        self.model = model
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by ``end``
        script = str(Path(__file__).with_name("local_server.py"))
        options = [f"--{name}={value}" for name, value in arguments.items()]
        self.process = subprocess.Popen(  # noqa: S603  # this very interpreter and our own file
            [sys.executable, "-P", script, f"--model={model}", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def wait(self) -> str:
        """Return the base URL once the server answers.

        Raises:
            CactusError: it ended before, or took too long; with the last lines that it wrote.
        """
        timer = threading.Timer(_START_SECONDS, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            said = json.loads(cast("IO[bytes]", self.process.stdout).readline())
            self.key, self.url = str(said["key"]), f"{said['address']}/v1"
        except (ValueError, OSError) as error:
            raise CactusError(
                f"the embedded model's server did not start with {self.model}: {self._last_words()}"
            ) from error
        finally:
            timer.cancel()
        return self.url

    def end(self) -> None:
        """End the process and give back what it held; twice is fine."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream:
                stream.close()

    def _last_words(self) -> str:
        if self._log.closed:
            return "it was closed meanwhile"
        self.process.kill()
        status = self.process.wait()
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        errors = [_ERROR_LINE.sub("", line) for line in lines if _ERROR_LINE.match(line)]
        return " / ".join(errors[:2] or lines[-3:]) + f" (exit status {status})"
