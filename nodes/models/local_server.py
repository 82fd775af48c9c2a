"""The process of the embedded model: llama.cpp's OpenAI-compatible server, on a free port of loopback.

Run as ``python -m nodes.models.local_server --model PATH``. It prints one line of JSON,
``{"address": URL, "key": KEY}``, when it answers, and lives until its standard input is closed: it ends with its
parent, however that ends. The key keeps other programs and web pages of this machine out. It imports nothing of
Cactus, so that it may also be run as a file.
"""

import argparse
import json
import os
import secrets
import signal
import sys
import threading
from typing import Any, Protocol, cast


class Server(Protocol):
    """What is used of ``xllamacpp.Server``."""

    listening_address: str


def main() -> None:
    """Serve until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    options, key = _options(), secrets.token_urlsafe()
    try:
        server = _serve(options.model, options.context, options.parallel, options.threads, key)
    except RuntimeError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"address": server.listening_address, "key": key}) + "\n")
    sys.stdout.flush()
    threading.Event().wait()


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once: the server's own threads have nothing to save


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve a GGUF model until standard input closes.")
    parser.add_argument("--model", required=True, help="path of the GGUF file")
    parser.add_argument("--context", type=int, default=8192, help="tokens of context, shared by all slots")
    parser.add_argument("--parallel", type=int, default=1, help="slots: requests served at once")
    parser.add_argument("--threads", type=int, default=2, help="threads that compute")
    return parser.parse_args()


def _serve(model: str, context: int, parallel: int, threads: int, key: str) -> Server:
    """Return the running server, ready to answer."""
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # read as the library loads; without it a busy machine crawls
    import xllamacpp

    library = cast("Any", xllamacpp)
    params = library.CommonParams()
    params.model.path = model
    params.model_alias = {"local"}
    params.api_keys = [key]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = context
    params.n_parallel = parallel
    params.n_predict = context // parallel
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0
    params.ui = False
    params.offline = True
    return cast("Server", library.Server(params))


if __name__ == "__main__":
    main()
