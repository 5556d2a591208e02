"""The line to the server: scripts and plain reads, addressed to a partition."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import redis
import redis.asyncio as redis_asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from ade.core.errors import StoreUnavailable
from ade.stores.redis.keys import Names
from ade.stores.redis.scripts import script

_pack = msgspec.msgpack.Encoder().encode


class Link:
    """One server. Every answer is bytes and whole numbers, as the server gave it."""

    def __init__(self, host: str, port: int, *, prefix: str = "ade:") -> None:
        self.partitions = 1
        self.names: Sequence[Names] = [Names.of(prefix)]
        self._address = {"host": host, "port": port}
        self._clients: dict[asyncio.AbstractEventLoop, redis_asyncio.Redis] = {}
        self._blocking: redis.Redis | None = None

    async def run(self, name: str, partition: int, request: dict[str, Any]) -> Any:
        """Call a script of `lua/` on a partition."""
        known = script(name)
        arguments = self._arguments(partition, request)
        client = self._client()
        try:
            try:
                return await client.execute_command("EVALSHA", known.sha, *arguments)  # type: ignore[no-untyped-call]
            except redis.exceptions.NoScriptError:
                return await client.execute_command("EVAL", known.text, *arguments)  # type: ignore[no-untyped-call]
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            raise StoreUnavailable(f"the server does not answer: {error}") from error

    def run_blocking(self, name: str, partition: int, request: dict[str, Any]) -> Any:
        """The same from a thread without an event loop, on a connection of its own."""
        known = script(name)
        if self._blocking is None:
            self._blocking = redis.Redis(**self._address, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        arguments = self._arguments(partition, request)
        try:
            return self._blocking.execute_command("EVALSHA", known.sha, *arguments)  # type: ignore[no-untyped-call]
        except redis.exceptions.NoScriptError:
            return self._blocking.execute_command("EVAL", known.text, *arguments)  # type: ignore[no-untyped-call]

    async def ask(self, partition: int, *commands: tuple[Any, ...]) -> list[Any]:
        """Plain commands in one round trip, not a transaction. Raises the first error among the answers."""
        pipeline = self._client().pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await pipeline.execute()
        return answers

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        if self._blocking is not None:
            self._blocking.close()

    def _arguments(self, partition: int, request: dict[str, Any]) -> tuple[Any, ...]:
        names = self.names[partition]
        return (
            2,
            f"{names.prefix}meta",
            f"{names.prefix}void",
            _pack(request),
            partition,
            self.partitions,
            names.tasks,
            names.group,
            names.results,
            names.dlq,
        )

    def _client(self) -> redis_asyncio.Redis:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = redis_asyncio.Redis(**self._address, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        return self._clients[loop]
