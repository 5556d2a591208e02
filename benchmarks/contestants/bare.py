"""The floor of HTTP: uvicorn and the smallest honest app that reads the same body and answers a task like ADE's.

It knows no tokens, rights or rates. One form stores nothing; the others put the task into ADE's queue before they
answer, which shows what ADE's HTTP interface costs beside its store.
"""

import importlib.metadata
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from benchmarks.contestants.ade import REDIS as REDIS_QUEUE
from benchmarks.contestants.ade import SQLITE as SQLITE_QUEUE
from benchmarks.contract import Contestant, HttpContestant, Place, Site, payload
from benchmarks.cores import told
from benchmarks.http_requests import PAGE, TASK_NAME, TASKS
from benchmarks.uvicorn_server import run

Put = Callable[[str], Awaitable[object]]
Event = dict[str, Any]
ASKED_FOR = 200
MOMENT = "2026-11-16T16:13:07.672Z"


class NewTask(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any]
    queue: str | None = None
    priority: int | None = None


class Backoff(msgspec.Struct, frozen=True):
    base_ms: int = 1000
    multiplier: float = 2.0
    cap_ms: int = 300_000
    jitter: float = 0.1


class Task(msgspec.Struct, kw_only=True):
    """What ADE answers for a new task."""

    id: str
    name: str
    queue: str = "default"
    args: dict[str, Any]
    priority: int = 5
    after_failure: str = "cancel"
    source: str = "user"
    author_id: str = "load"
    max_attempts: int = 3
    backoff: Backoff = Backoff()
    result_ttl_ms: int = 604_800_000
    status: str = "pending"
    version: int = 1
    generation: int = 1
    attempt: int = 0
    timeouts: int = 0
    throttles: int = 0
    discarded: bool = False
    created_at: str = MOMENT
    updated_at: str = MOMENT
    result_expired: bool = False


class Page(msgspec.Struct):
    items: list[Task]


class Bare:
    """What stores nothing answers the tasks it began with, and forgets the others."""

    def __init__(self, queue: Contestant | None = None) -> None:
        self._queue = queue

    def describe(self, place: Place) -> Mapping[str, str]:
        versions = ", ".join(f"{each} {importlib.metadata.version(each)}" for each in ("uvicorn", "uvloop", "msgspec"))
        return {
            "version": versions,
            "set for this run": "httptools, uvloop, no log of requests, as ADE has it",
            "for each request": "the form, nothing else",
            "stored": "nothing" if self._queue is None else "by ADE's `enqueue`, before the answer",
            "runs on": told(),
        }

    def serve(self, place: Place, stock: int, announce: Callable[[Site], None]) -> int | None:
        tasks = [_task(NewTask(TASK_NAME, {"payload": payload(number, 200)})) for number in range(stock)]
        ids = [task.id for task in tasks[:ASKED_FOR]]
        run(_opened(tasks, self._queue, place), lambda port: announce(Site(port, "none", ids)))
        return None


class App:
    """ASGI."""

    def __init__(self, tasks: list[Task], put: Put | None) -> None:
        self._tasks = tasks
        self._by_path = {f"{TASKS}/{task.id}": task for task in tasks}
        self._put = put
        self._decode = msgspec.json.Decoder(NewTask).decode
        self._encode = msgspec.json.Encoder().encode

    async def __call__(
        self, scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
    ) -> None:
        status = 200
        if scope["method"] == "POST":
            new = self._decode(await _body(receive))
            if self._put is not None:
                await self._put(new.args["payload"])
            status, body = 201, self._encode(_task(new))
        elif scope["path"] == TASKS:
            body = self._encode(Page(self._tasks[:PAGE]))
        else:
            body = self._encode(self._by_path[scope["path"]])
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _body(receive: Callable[[], Awaitable[Event]]) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    return body


def _task(new: NewTask) -> Task:
    return Task(id=str(uuid.uuid4()), name=new.name, args=new.args)


@asynccontextmanager
async def _opened(tasks: list[Task], queue: Contestant | None, place: Place) -> AsyncIterator[App]:
    if queue is None:
        yield App(tasks, None)
        return
    connection = queue.connect(place)
    assert isinstance(connection, AbstractAsyncContextManager)
    async with connection as client:
        yield App(tasks, client.put)


NOTHING: HttpContestant = Bare()
SQLITE: HttpContestant = Bare(SQLITE_QUEUE)
REDIS: HttpContestant = Bare(REDIS_QUEUE)
