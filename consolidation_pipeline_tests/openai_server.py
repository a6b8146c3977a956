"""Local server with the part of the OpenAI API that litellm calls, and configurable failures.

with openai_server() as server:
    server.then(reply_with_error(429, retry_after=2))           # behaviour for the next request
    server.behaviour = reply_with_embeddings(dimension=16)      # behaviour for all other requests
    server.behaviour = reply_with_json(lambda request: {"answer": "yes"})

A behaviour is a function from a request to a reply. It can depend on the request's body.
"""

import json
import random
import re
import struct
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DROPPED = 0


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Behaviour = Callable[[Request], Reply | None]
"""Returns None to never reply."""

EmbeddingRows = list[dict[str, Any]]

Answer = Callable[[Request], Any]
"""Returns the content of a chat reply as a JSON value."""


def text_vector(text: str, dimension: int = 8) -> list[float]:
    """Return the server's vector of a text: deterministic, not normalised."""
    noise = random.Random(text)
    return [noise.gauss(0, 3) for _ in range(dimension)]


def pack_vectors(rows: EmbeddingRows, request: Request) -> EmbeddingRows:
    """Return the rows with float32 vectors in base64, if the request asks for that."""
    if request.body.get("encoding_format") != "base64":
        return rows
    packed = (struct.pack(f"<{len(row['embedding'])}f", *row["embedding"]) for row in rows)
    return [{**row, "embedding": b64encode(vector).decode()} for row, vector in zip(rows, packed, strict=True)]


def reply_with_embeddings(
    *, dimension: int = 8, edit: Callable[[EmbeddingRows], EmbeddingRows] = lambda rows: rows, packs: bool = True
) -> Behaviour:
    """Return a behaviour for ``/v1/embeddings``; ``edit`` may change the rows before they are sent.

    ``packs``: send base64 if that is asked for, else always numbers.
    """

    def behaviour(request: Request) -> Reply:
        texts = request.body["input"]
        rows = [
            {"object": "embedding", "index": index, "embedding": text_vector(text, dimension)}
            for index, text in enumerate(texts)
        ]
        tokens = sum(len(text.split()) for text in texts)
        return json_response(
            {
                "object": "list",
                "model": request.body["model"],
                "data": pack_vectors(edit(rows), request) if packs else edit(rows),
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    return behaviour


def reverse_rows(rows: EmbeddingRows) -> EmbeddingRows:
    """Return the rows in reverse order, with correct indexes."""
    return rows[::-1]


def drop_last_row(rows: EmbeddingRows) -> EmbeddingRows:
    """Return the rows without the last one."""
    return rows[:-1]


def replace_vector(position: int, vector: list[float]) -> Callable[[EmbeddingRows], EmbeddingRows]:
    """Return an edit that replaces the vector at ``position``."""
    return lambda rows: [{**row, "embedding": vector} if row["index"] == position else row for row in rows]


def reply_with_text(
    content: str | Callable[[Request], str | None] | None,
    *,
    finish_reason: str = "stop",
    refusal: str | None = None,
    usage: tuple[int, int] | None = (100, 20),
) -> Behaviour:
    """Return a behaviour for ``/v1/chat/completions``.

    Args:
        content: text of the reply, or a function that returns it.
        finish_reason: reason why the reply ends.
        refusal: refusal instead of a text.
        usage: tokens sent and received; None: not reported.
    """

    def behaviour(request: Request) -> Reply:
        text = content(request) if callable(content) else content
        message = {"role": "assistant", "content": text, "refusal": refusal}
        reply: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": request.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        }
        if usage is not None:
            sent, received = usage
            reply["usage"] = {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}
        return json_response(reply)

    return behaviour


def reply_with_json(
    answer: Answer,
    *,
    edit: Callable[[Any], Any] = lambda value: value,
    write: Callable[[str], str] = lambda text: text,
    usage: tuple[int, int] | None = (100, 20),
) -> Behaviour:
    """Return a behaviour that replies with JSON; ``edit`` may change the value, ``write`` the text."""
    return reply_with_text(lambda request: write(json.dumps(edit(answer(request)))), usage=usage)


def truncate_half(text: str) -> str:
    """Return the first half of a text."""
    return text[: len(text) // 2]


def wrap_in_markdown(text: str) -> str:
    """Return the text in a fenced code block."""
    return f"```json\n{text}\n```"


def wrap_in_prose(text: str) -> str:
    """Return the text between prose that contains braces but no JSON."""
    return f"Sure, here is the {{result}} you asked for:\n{text}\nLet me know {{if}} you need more."


def invent_unit_ids(value: Any) -> Any:
    """Replace each ``unit`` by an unknown id."""
    return _edited(value, lambda key, old: 999 if key == "unit" else old)


def invent_quotes(value: Any) -> Any:
    """Replace each ``quote`` by an invented one."""
    return _edited(value, lambda key, old: "words that nobody wrote" if key == "quote" else old)


def drop_numbers(value: Any) -> Any:
    """Remove all digits from the texts."""
    return _edited(value, lambda _, old: re.sub(r"\d+", "", old) if isinstance(old, str) else old)


def change_numbers(value: Any) -> Any:
    """Replace all numbers in the texts."""
    return _edited(value, lambda _, old: re.sub(r"\d+", "987654", old) if isinstance(old, str) else old)


def _edited(value: Any, change: Callable[[str, Any], Any], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _edited(item, change, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_edited(item, change, key) for item in value]
    return change(key, value)


def reply_with_refusal(request: Request) -> Reply | None:
    """Reply with a refusal of the model."""
    return reply_with_text(None, refusal="I cannot help with that.")(request)


def drop_connection(_: Request) -> Reply:
    """Close the connection without a reply."""
    return Reply(b"", status=DROPPED)


def reply_with_error(status: int, *, retry_after: float | None = None) -> Behaviour:
    """Return a behaviour that replies with an error in OpenAI's format."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    error = {"error": {"message": f"test error with status {status}", "type": "test", "code": None}}
    return lambda _: json_response(error, status=status, headers=headers)


def reply_with_broken_json(_: Request) -> Reply:
    """Reply with status 200 and truncated JSON."""
    return Reply(b'{"object": "list", "data": [{"index": 0, "embe', headers={"Content-Type": "application/json"})


# Failures that any request may meet, by name.
ERRORS: dict[str, Behaviour] = {
    **{str(status): reply_with_error(status) for status in (400, 429, 500, 502)},
    "truncated": reply_with_broken_json,
    "dropped": drop_connection,
}


def record_concurrency(expected: int, behaviour: Behaviour) -> tuple[Behaviour, list[int]]:
    """Return a behaviour that first waits for ``expected`` requests at once, and its counts: running now, at most."""
    together, lock, running = threading.Barrier(expected, timeout=30), threading.Lock(), [0, 0]

    def record(request: Request) -> Reply | None:
        with lock:
            running[0] += 1
            running[1] = max(running)
        together.wait()
        with lock:
            running[0] -= 1
        return behaviour(request)

    return record, running


def never_reply(_: Request) -> None:
    """Never reply, so that the client times out."""


def json_response(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """Return a reply with a JSON body; NaN is written as ``NaN``, as lenient servers do."""
    return Reply(json.dumps(content).encode(), status, {"Content-Type": "application/json", **(headers or {})})


class OpenAIServer:
    """Server at ``api_base`` that records ``requests`` and replies by queued behaviours or ``behaviour``."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._orders: deque[Behaviour] = deque()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.api_base = f"http://127.0.0.1:{self._http.server_port}/v1"

    def then(self, *behaviours: Behaviour) -> None:
        """Queue behaviours for the next requests, in order of arrival."""
        self._orders.extend(behaviours)

    def answer(self, request: Request) -> Reply | None:
        """Record a request and find its reply."""
        with self._lock:
            self.requests.append(request)
            behaviour = self._orders.popleft() if self._orders else self.behaviour
        return behaviour(request)

    @contextmanager
    def running(self) -> Iterator["OpenAIServer"]:
        """Serve in a thread; release hanging requests at the end."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()


def client_environment(api_base: str) -> dict[str, str]:
    """Return environment variables that direct litellm to a server."""
    return {"OPENAI_API_BASE": api_base, "OPENAI_BASE_URL": api_base, "OPENAI_API_KEY": "sk-test"}


@contextmanager
def openai_server(behaviour: Behaviour | None = None) -> Iterator[OpenAIServer]:
    """Run a server on a free port; default behaviour: embeddings of dimension 8."""
    with OpenAIServer(behaviour or reply_with_embeddings()).running() as server:
        yield server


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = server.answer(Request(self.path, headers, json.loads(body)))
            if reply is None:
                server.closing.wait()
                return
            if reply.status == DROPPED:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: Any) -> None:
            """Write no log; tests read ``requests``."""

    return Handler
