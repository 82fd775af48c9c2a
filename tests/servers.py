"""Real HTTP servers on loopback: an OpenAI-compatible endpoint, and LangSmith's ingest endpoint as a stub."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        chunked = self.headers.get("transfer-encoding") == "chunked"
        raw = b"".join(self.chunks()) if chunked else self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(raw)
        return raw

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(handler: type[_Handler], state: Any) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class OpenAI:
    """Answers by the next of ``behaviours``, then with ``answer``. ``times`` are the requests' (monotonic)."""

    behaviours: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answer: str = "an answer"
    usage: bool = True
    times: list[float] = field(default_factory=list[float])
    prompts: list[str] = field(default_factory=list[str])


class OpenAIHandler(_Handler):
    def do_POST(self) -> None:
        state: OpenAI = self.server.state  # type: ignore[attr-defined]
        request = json.loads(self.body())
        state.times.append(time.monotonic())
        state.prompts.append(request["messages"][-1]["content"])
        behaviour = state.behaviours.pop(0) if state.behaviours else {}
        if behaviour.get("drop"):
            self.close_connection = True
            self.connection.close()
        elif "sleep" in behaviour:
            time.sleep(behaviour["sleep"])
            self.close_connection = True
        elif "status" in behaviour:
            error = {"error": {"message": behaviour.get("message", "no"), "code": behaviour.get("code"), "type": "x"}}
            self.answer(behaviour["status"], json.dumps(error).encode(), behaviour.get("headers"))
        else:
            self.reply(state, request, behaviour)

    def reply(self, state: OpenAI, request: dict[str, Any], behaviour: dict[str, Any]) -> None:
        message = {"role": "assistant", "content": behaviour.get("content", state.answer)} | behaviour.get(
            "message", {}
        )
        finish = behaviour.get("finish", "stop")
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10} if state.usage else None
        head = {"id": "x", "created": 0, "model": request["model"]}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            self.answer(200, json.dumps(body).encode())
            return
        chunks = [{"choices": [{"index": 0, "delta": {"content": f"{word} "}}]} for word in message["content"].split()]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if usage and (request.get("stream_options") or {}).get("include_usage"):
            chunks.append({"choices": [], "usage": usage})
        lines = [f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
        self.answer(200, ("".join(lines) + "data: [DONE]\n\n").encode(), {"content-type": "text/event-stream"})


@dataclass
class LangSmith:
    """Keeps every request, and the runs that they brought, by id, later parts over earlier ones."""

    requests: list[str] = field(default_factory=list[str])
    runs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


class LangSmithHandler(_Handler):
    def do_GET(self) -> None:
        self.server.state.requests.append(self.path)  # type: ignore[attr-defined]
        limits = {"use_multipart_endpoint": True, "size_limit": 100, "size_limit_bytes": 20_000_000}
        limits |= {"scale_up_qsize_trigger": 1000, "scale_up_nthreads_limit": 2, "scale_down_nempty_trigger": 4}
        self.answer(200, json.dumps({"version": "0.12", "batch_ingest_config": limits}).encode())

    def do_POST(self) -> None:
        state: LangSmith = self.server.state  # type: ignore[attr-defined]
        state.requests.append(self.path)
        body = self.body()
        if self.path.endswith("/multipart"):
            self.take_parts(state, body)
        else:
            batch = json.loads(body)
            for run in [*batch.get("post", []), *batch.get("patch", [])]:
                state.runs.setdefault(run["id"], {}).update(run)
        self.answer(202, b"{}")

    do_PATCH = do_POST  # noqa: N815  # the name that http.server looks for

    def take_parts(self, state: LangSmith, body: bytes) -> None:
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        for part in BytesParser().parsebytes(head + body).get_payload():  # type: ignore[union-attr]
            name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]
            _, run, *inner = str(name).split(".")
            value = json.loads(part.get_payload(decode=True))  # type: ignore[union-attr,arg-type]
            update = {inner[0]: value} if inner else value
            state.runs.setdefault(run, {}).update(update)
