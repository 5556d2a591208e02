"""A server that answers as a story says, and a client that never really waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from ade import Client, Task
from ade.client.http_transport import HttpTransport
from ade.client.transport import RetryLimits
from ade.server.problems import Problem
from tests.common.http.servers import Server, Visit, answer, serving
from tests.domain import to_wire

TASK = Task(id="01900000-0000-7000-8000-000000000001", name="greet", version=3, created_at=1_760_000_000_000)
TOKEN = "ade_secret"


def json_answer(value: object, *, status: str = "200 OK", headers: str = "") -> bytes:
    return answer(msgspec.json.encode(value), status=status, headers=f"content-type: application/json\r\n{headers}")


def task_answer(task: Task = TASK) -> bytes:
    return json_answer(to_wire(task), headers=f'etag: "{task.version}"\r\n')


def problem_answer(status: int, code: str, *, headers: str = "", **more: object) -> bytes:
    problem = Problem(code=code, status=status, title="no", detail=f"it is {code}", more=more)
    return answer(problem.body(), status=f"{status} No", headers=f"content-type: application/problem+json\r\n{headers}")


DROP = b""  # hang up instead of an answer


class Cut(bytes):
    """Part of an answer, after which the server hangs up."""


@dataclass
class Story:
    """A server with these answers, one after the other, and what was asked and waited for."""

    server: Server
    client: Client
    pauses: list[float] = field(default_factory=list)

    def asked(self, name: str) -> list[str]:
        """The values of a header, request by request; empty where it was not sent."""
        return [header(request, name) for request in self.server.asked]

    @property
    def lines(self) -> list[str]:
        """The first lines of all requests."""
        return [request.partition(b"\r\n")[0].decode().removesuffix(" HTTP/1.1") for request in self.server.asked]


def header(request: bytes, name: str) -> str:
    head = request.partition(b"\r\n\r\n")[0].decode("latin-1")
    pairs = [line.partition(":") for line in head.split("\r\n")[1:]]
    return next((value.strip() for known, _, value in pairs if known.lower() == name), "")


@asynccontextmanager
async def story(*answers: bytes, repeats: int = 3) -> AsyncIterator[Story]:
    left = [*answers]

    async def say(server: Server, visit: Visit) -> None:
        while asked := await visit.request():
            server.asked.append(asked)
            said = left.pop(0)
            if not said:
                visit.drop()
                return
            await visit.say(said)
            if isinstance(said, Cut):
                return

    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with serving(say) as server:
        patience = RetryLimits(repeats=repeats, stream_repeats=repeats)
        transport = HttpTransport(server.url, token=TOKEN, patience=patience, sleep=sleep, randomness=lambda: 0.5)
        async with Client(transport) as client:
            yield Story(server, client, pauses)
