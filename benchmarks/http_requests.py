"""Requests as bytes, made beforehand as far as possible, and the little of HTTP that reads their answers."""

import json
from collections.abc import Callable, Mapping

from benchmarks.contract import Site, payload

TASKS = "/api/v1/tasks"
EVENTS = "/api/v1/events"
PAGE = 50
TASK_NAME = "noop"
RequestOf = Callable[[int], bytes]  # the request of this number
Maker = Callable[[Site, int], RequestOf]
_LENGTH = b"content-length: "
_HEAD_ENDS = b"\r\n\r\n"


class BadAnswer(Exception):
    """The server answered something else than was asked for."""


def create(site: Site, payload_bytes: int) -> RequestOf:
    """Every body is another one; all have the same length."""
    text = payload(0, payload_bytes)
    body = json.dumps({"name": TASK_NAME, "args": {"payload": text}}).encode()
    extra = {"content-type": "application/json", "content-length": str(len(body))}
    before, after = (_head("POST", TASKS, site, extra) + body).split(text[:8].encode() + b"x", 1)
    return lambda number: b"%b%08dx%b" % (before, number, after)


def get(site: Site, payload_bytes: int) -> RequestOf:
    made = [_head("GET", f"{TASKS}/{each}", site) for each in site.ids]
    return lambda number: made[number % len(made)]


def list_page(site: Site, payload_bytes: int) -> RequestOf:
    made = _head("GET", f"{TASKS}?limit={PAGE}", site)
    return lambda number: made


REQUESTS: Mapping[str, Maker] = {"create": create, "get": get, "list": list_page}
EXPECTED = {"create": 201, "get": 200, "list": 200}


def subscribe(site: Site, after: int) -> bytes:
    return _head("GET", f"{EVENTS}?after={after}", site, {"accept": "text/event-stream"})


def events_page(site: Site, after: int, limit: int) -> bytes:
    return _head("GET", f"{EVENTS}?after={after}&limit={limit}", site)


def answer_size(received: bytes | bytearray) -> int | None:
    """How long the answer is at whose beginning this is; None while its head is not there."""
    end = received.find(_HEAD_ENDS)
    if end < 0:
        return None
    at = received.find(_LENGTH, 0, end + 2)
    if at < 0:
        raise BadAnswer(f"an answer without a length: {bytes(received[:100])!r}")
    length = int(received[at + len(_LENGTH) : received.find(b"\r\n", at)])
    return end + len(_HEAD_ENDS) + length


def status_of(answer: bytes | bytearray) -> int:
    """HTTP/1.1 200 OK"""
    return int(answer[9:12])


def body_of(answer: bytes | bytearray) -> bytes:
    return bytes(answer[answer.find(_HEAD_ENDS) + len(_HEAD_ENDS) :])


def _head(method: str, target: str, site: Site, extra: Mapping[str, str] | None = None) -> bytes:
    headers = {"host": f"127.0.0.1:{site.port}", "authorization": f"Bearer {site.token}", **(extra or {})}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
