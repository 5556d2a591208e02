"""A store that does not answer: everybody is told so in time, and all goes on when it is back."""

import asyncio
from pathlib import Path

from tests.domain import RULES
from tests.server.conftest import Answer, ServerHarness, start_server
from tests.servers.pool import POOL
from tests.servers.proxy import Proxy
from tests.waiting import eventually

PATIENCE_S = 3.0
MANY = 40
RATES = {f"http.{name}_rate": "60000/m" for name in ("read", "write")}
BRIEF = {"redis.patience_s": PATIENCE_S, "redis.command_timeout_s": 1.5, "redis.confirm_timeout_s": 0.1, **RATES}


async def test_many_who_ask_while_the_store_is_away_are_all_told_at_once(tmp_path: Path) -> None:
    """Not one after the other: each of them would wait for the store as long as all before him together."""
    valkey = POOL.standalone("valkey")
    with Proxy(valkey.port) as path:
        async with start_server(f"redis://{path.address}/0", tmp_path, **BRIEF) as server:
            assert (await server.ask("GET", "/api/v1/tasks")).status == 200
            path.blackhole()
            server.stores.wakeups.notify(RULES)  # so that nobody is known from memory any more
            began = asyncio.get_running_loop().time()
            reads = [server.ask("GET", "/api/v1/tasks") for _ in range(MANY)]
            writes = [
                server.ask("POST", "/api/v1/tasks", {"name": "greet"}, idempotency_key=str(n)) for n in range(MANY)
            ]
            answers = await asyncio.gather(*reads, *writes)
            took_s = asyncio.get_running_loop().time() - began
            assert {(answer.status, answer.code) for answer in answers} == {(503, "store_unavailable")}
            assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
            assert took_s < MANY * PATIENCE_S / 2
            assert (await server.ask("GET", "/livez", by=None)).status == 200
            assert (await server.ask("GET", "/readyz", by=None)).status == 503
            path.heal()
            await eventually(lambda: is_ready(server))
            again = await asyncio.gather(*(enqueue(server, number) for number in range(MANY)))
            assert {answer.status for answer in again} == {201}


async def enqueue(server: ServerHarness, number: int) -> Answer:
    """Asked again for as long as the store may still be busy with all the others."""

    async def ask() -> Answer | None:
        answer = await server.ask("POST", "/api/v1/tasks", {"name": "greet"}, idempotency_key=f"key-{number}")
        return answer if answer.status != 503 else None

    return await eventually(ask)


async def is_ready(server: ServerHarness) -> bool:
    return (await server.ask("GET", "/readyz", by=None)).status == 200
