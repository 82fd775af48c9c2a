"""Real HTTP servers on loopback: an OpenAI-compatible endpoint, and LangSmith's ingest endpoint as a stub."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import zstandard

NOW = "2026-01-01T00:00:00+00:00"


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
    """Keeps every request, and the runs and feedback that they brought, by id, later parts over earlier ones."""

    requests: list[str] = field(default_factory=list[str])
    runs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    feedback: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    projects: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    examples: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class LangSmithHandler(_Handler):
    def do_GET(self) -> None:
        state: LangSmith = self.server.state  # type: ignore[attr-defined]
        state.requests.append(self.path)
        path, _, query = self.path.partition("?")
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        if path == "/info":
            self.answer(200, json.dumps(self.info()).encode())
        elif path == "/sessions":
            self.answer(200, json.dumps([project(state, asked.get("name", "default"))]).encode())
        elif path == "/datasets":
            found = [each for each in state.datasets.values() if each["name"] == asked.get("name", each["name"])]
            self.answer(200, json.dumps(found).encode())
        elif path == "/examples":
            found = [each for each in state.examples if each["dataset_id"] == asked["dataset"]]
            found = found[int(asked.get("offset", 0)) :]
            self.answer(200, json.dumps(found[: int(asked.get("limit", 100))]).encode())
        else:
            self.answer(404, b"{}")

    def info(self) -> dict[str, Any]:
        limits = {"use_multipart_endpoint": True, "size_limit": 100, "size_limit_bytes": 20_000_000}
        limits |= {"scale_up_qsize_trigger": 1000, "scale_up_nthreads_limit": 2, "scale_down_nempty_trigger": 4}
        flags = {"dataset_examples_multipart_enabled": False}
        return {"version": "0.12", "batch_ingest_config": limits, "instance_flags": flags}

    def do_POST(self) -> None:
        state: LangSmith = self.server.state  # type: ignore[attr-defined]
        state.requests.append(self.path)
        body = self.body()
        if self.path.endswith("/multipart"):
            self.take_parts(state, body)
            self.answer(202, b"{}")
            return
        value = json.loads(body)
        reply: Any = {}
        if self.path == "/runs/batch":
            for run in [*value.get("post", []), *value.get("patch", [])]:
                state.runs.setdefault(run["id"], {}).update(run)
        elif self.path == "/feedback":
            state.feedback[value["id"]] = value
        elif self.path.startswith("/sessions"):
            known = next((each for each in state.projects.values() if self.path.endswith(each["id"])), None)
            reply = known or project(state, value.pop("name", ""), **value)
        elif self.path == "/datasets":
            value |= {"id": str(uuid.uuid4()), "created_at": NOW, "modified_at": NOW}
            reply = state.datasets[value["id"]] = value
        elif self.path == "/examples/bulk":
            reply = [{"id": str(uuid.uuid4()), "created_at": NOW, "modified_at": NOW, **each} for each in value]
            state.examples += reply
        self.answer(200, json.dumps(reply).encode())

    do_PATCH = do_POST  # noqa: N815  # the name that http.server looks for

    def take_parts(self, state: LangSmith, body: bytes) -> None:
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        for part in BytesParser().parsebytes(head + body).get_payload():  # type: ignore[union-attr]
            name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]
            kind, entry, *inner = str(name).split(".")
            value = json.loads(part.get_payload(decode=True))  # type: ignore[union-attr,arg-type]
            update = {inner[0]: value} if inner else value
            (state.feedback if kind == "feedback" else state.runs).setdefault(entry, {}).update(update)


def project(state: LangSmith, name: str, **more: Any) -> dict[str, Any]:
    """Return the project of that name, made where it is missing."""
    known = {"id": str(uuid.uuid4()), "tenant_id": str(uuid.uuid4()), "name": name, "reference_dataset_id": None}
    return state.projects.setdefault(name, {**known, "start_time": NOW, **more})


@dataclass
class Collector:
    """Keeps the spans that were exported to it, and the paths that were asked."""

    spans: list[Any] = field(default_factory=list[Any])
    requests: list[str] = field(default_factory=list[str])


class CollectorHandler(_Handler):
    """An OpenTelemetry collector's receiver, OTLP over HTTP."""

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        state: Collector = self.server.state  # type: ignore[attr-defined]
        state.requests.append(self.path)
        body = self.body()
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        state.spans += [span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans]
        self.answer(200, b"", {"content-type": "application/x-protobuf"})
