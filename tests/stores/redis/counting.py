"""A script with which the stories about connections can see what was done, and how often."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.scripts import LuaScript
from tests.domain import RedisSettings

COUNT = LuaScript(
    "count",
    """#!lua
-- Counts every request once, however often it is sent.
local id = cmsgpack.unpack(ARGV[1]).id
local prefix = string.sub(KEYS[1], 1, -5)
if redis.call('SADD', prefix .. 'seen', id) == 1 then
  redis.call('INCR', prefix .. 'count')
end
redis.call('INCR', prefix .. 'runs')
return tonumber(redis.call('GET', prefix .. 'count'))
""",
)

# Tries are short, so that a story with a silent server is too.
QUICK = RedisSettings(command_timeout_s=0.4, confirm_timeout_s=0.2, allow_volatile=True)

# For answers that must come, however busy the machine is.
PATIENT = RedisSettings(command_timeout_s=40, confirm_timeout_s=10, allow_volatile=True)


@asynccontextmanager
async def linked(url: str, options: RedisSettings = QUICK) -> AsyncIterator[RedisClient]:
    link = RedisClient.to(url, options)
    try:
        # As the start-up checks do: every partition has a key that is always there.
        for partition, names in enumerate(link.names):
            await link.ask(partition, ("HSETNX", f"{names.prefix}meta", "partitions", link.partitions))
        yield link
    finally:
        await link.close()


async def count(link: RedisClient, request: str, partition: int = 0, *, confirm: bool = False) -> int:
    return int(await link.run_script(COUNT, partition, {"id": request}, confirm=confirm))


async def counted(link: RedisClient, partition: int = 0) -> int:
    """How many requests were counted."""
    [number] = await link.ask(partition, ("GET", f"{link.names[partition].prefix}count"))
    return int(number or 0)


class Load:
    """Callers that count one request after the other on all partitions until they are told to stop."""

    def __init__(self, link: RedisClient, callers: int = 6) -> None:
        self._link = link
        self._stopping = False
        self._numbers = itertools.count()
        self.answered = 0
        self._more = asyncio.Event()
        self._tasks = [asyncio.create_task(self._call(caller)) for caller in range(callers)]

    async def _call(self, caller: int) -> None:
        try:
            while not self._stopping:
                number = next(self._numbers)
                await count(self._link, f"{caller}-{number}", number % self._link.partitions)
                self.answered += 1
                self._more.set()
        finally:
            self._more.set()  # who waits for more learns why there is none

    async def go_on(self, requests: int, within_s: float = 60) -> None:
        """Wait until this many more were answered."""
        wanted = self.answered + requests
        async with asyncio.timeout(within_s):
            while self.answered < wanted:
                if any(task.done() for task in self._tasks):
                    await asyncio.gather(*self._tasks)  # raises what ended it
                self._more.clear()
                await self._more.wait()

    async def breathe(self) -> None:
        """Let the callers have their turn."""
        await asyncio.sleep(0)

    async def stop(self) -> int:
        """How many requests were answered in all."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        return self.answered


async def counted_everywhere(link: RedisClient) -> int:
    return sum([await counted(link, partition) for partition in range(link.partitions)])
