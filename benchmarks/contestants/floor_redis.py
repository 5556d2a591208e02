"""The floor on Redis: ADE's design and nothing else, to see how much of its speed the rest of ADE takes.

Whole transitions in batched scripts, each with the record, the fence and one event entry per commit; the stream's
pending list is the lease; one asyncio task per task.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import uvloop
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from benchmarks.contract import AsyncClient, Body, Contestant, Place
from benchmarks.watching import watching

READY, RECORDS, EVENTS, GROUP = "floor:ready", "floor:records", "floor:events", "workers"
CLAIM = 100

# ARGV: id, payload, id, payload, ...
ADD = """
local ids = {}
for at = 1, #ARGV, 2 do
    redis.call('XADD', KEYS[1], '*', 'i', ARGV[at], 'p', ARGV[at + 1])
    redis.call('HSET', KEYS[2], ARGV[at], 'pending|')
    ids[#ids + 1] = ARGV[at]
end
redis.call('XADD', KEYS[3], '*', 'kind', 'created', 'ids', table.concat(ids, ' '))
"""
# ARGV: run id, then the ids
BEGIN = """
local fields = {}
for at = 2, #ARGV do
    fields[#fields + 1] = ARGV[at]
    fields[#fields + 1] = 'running|' .. ARGV[1]
end
redis.call('HSET', KEYS[2], unpack(fields))
redis.call('XADD', KEYS[3], '*', 'kind', 'started', 'ids', table.concat(ARGV, ' ', 2))
"""
# ARGV: group, run id, then entry, id, result, ...
FINISH = """
local mine, fields, entries, ids = 'running|' .. ARGV[2], {}, {}, {}
for at = 3, #ARGV, 3 do
    if redis.call('HGET', KEYS[2], ARGV[at + 1]) == mine then
        entries[#entries + 1] = ARGV[at]
        ids[#ids + 1] = ARGV[at + 1]
        fields[#fields + 1] = ARGV[at + 1]
        fields[#fields + 1] = 'completed|' .. ARGV[at + 2]
    end
end
if #ids == 0 then return 0 end
redis.call('HSET', KEYS[2], unpack(fields))
redis.call('XACK', KEYS[1], ARGV[1], unpack(entries))
redis.call('XDEL', KEYS[1], unpack(entries))
redis.call('XADD', KEYS[3], '*', 'kind', 'completed', 'ids', table.concat(ids, ' '))
return #ids
"""
KEYS = [READY, RECORDS, EVENTS]


class Floor:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": "this repository",
            "in force": "redis-py with hiredis, uvloop in the worker",
            "set for this run": f"three scripts, batches of up to {CLAIM} in the worker",
            "its docs recommend": "nothing: it is no product, only a limit to compare ADE with",
            "enqueue many": "one script call per batch",
            "result stored": "yes, with events",
            "killed in mid-task": "the entry stays in the stream's pending list",
        }

    @asynccontextmanager
    async def connect(self, place: Place) -> AsyncIterator[AsyncClient]:
        async with Redis.from_url(place.server) as redis:
            await _make_group(redis)
            add = redis.register_script(ADD)

            async def put_many(texts: Sequence[str]) -> None:
                words = [word for text in texts for word in (uuid.uuid4().hex, json.dumps(text))]
                await add(keys=KEYS, args=words)

            async def put(text: str) -> None:
                await put_many([text])

            yield AsyncClient(put=put, put_many=put_many)

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: wire.number("XLEN", READY))

    def work(self, place: Place, body: Body) -> None:
        uvloop.run(_work(place, body))


async def _work(place: Place, body: Body) -> None:
    run_id = uuid.uuid4().hex

    async def run(entry: bytes, fields: Mapping[bytes, bytes]) -> tuple[bytes, bytes, str]:
        return entry, fields[b"i"], json.dumps(body(json.loads(fields[b"p"])))

    async with Redis.from_url(place.server) as redis:
        await _make_group(redis)
        begin, finish = redis.register_script(BEGIN), redis.register_script(FINISH)
        while True:
            answer: Any = await redis.xreadgroup(GROUP, run_id, {READY: ">"}, count=CLAIM, block=1000)
            batch = _entries(answer)
            if not batch:
                continue
            await begin(keys=KEYS, args=[run_id, *(fields[b"i"] for _, fields in batch)])
            done = await asyncio.gather(*(asyncio.create_task(run(*each)) for each in batch))
            await finish(keys=KEYS, args=[GROUP, run_id, *(word for each in done for word in each)])


def _entries(answer: Any) -> Sequence[tuple[bytes, Mapping[bytes, bytes]]]:
    """The entries of the one stream that was asked for, whichever form the protocol's version gives the answer."""
    if not answer:
        return []
    [found] = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
    batches = found if isinstance(answer, dict) else [found]
    return [(entry, fields) for batch in batches for entry, fields in batch]


async def _make_group(redis: "Redis") -> None:
    try:
        await redis.xgroup_create(READY, GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


FLOOR: Contestant = Floor()
