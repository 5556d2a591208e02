"""Worker store on Redis: workers, definitions of task names, and lease renewal.

Workers and definitions are in the first partition; leases and limits are in the partitions of the tasks.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, structs

from ade.errors import StoreUnavailable
from ade.stores.ports import Renewal
from ade.stores.redis.client.client import BLOCKING_PATIENCE_S, RedisClient
from ade.stores.redis.client.topology import SHORT_PATIENCE_S
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text
from ade.stores.redis.partitions import Partitions
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Worker

FORGET_AFTER_MS = 600_000  # a lost worker stays visible for this time

_json = msgspec.json.Encoder().encode
_worker = msgspec.json.Decoder(Worker).decode
_definition = msgspec.json.Decoder(Definition).decode

Run = tuple[str, str]  # run id, task id


class RedisWorkers:
    """Registered workers, their task definitions, and their leases."""

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places
        self._registered: dict[str, Sequence[Definition]] = {}  # by worker id
        self._decoded: dict[bytes, Definition] = {}  # by JSON text, because most are unchanged at the next read

    async def register(self, worker: Worker, definitions: Sequence[Definition], ttl_ms: int) -> None:
        limits = [(definition.name, limits_of(definition)) for definition in definitions]
        if limits:  # a partition that does not respond gets them with the next repair
            await self._link.reach.each(
                self._places.all,
                lambda place, patience_s: self._link.run(
                    "define_names", place, {"limits": limits}, patience_s=patience_s
                ),
            )
        await self._link.run("register_worker", 0, self._heartbeat(worker, ttl_ms, _told(definitions)))
        self._registered[worker.id] = definitions

    def renew(self, worker: Worker, runs: Mapping[str, str], *, lease_ms: int, claiming: Sequence[str] = ()) -> Renewal:
        asked: defaultdict[int, list[Run]] = defaultdict(list)
        for run_id, task_id in runs.items():
            for partition in self._likely(task_id):
                asked[partition].append((run_id, task_id))
        for partition in self._places.all if claiming else ():
            asked[partition] += ()
        found, away = self._renew_in(asked, worker.id, lease_ms, claiming)
        elsewhere: defaultdict[int, list[Run]] = defaultdict(list)
        for run_id in runs.keys() - found.keys():
            tried = self._likely(runs[run_id])
            for partition in () if away.intersection(tried) else self._places.all:
                if partition not in tried:
                    elsewhere[partition].append((run_id, runs[run_id]))
        more, more_away = self._renew_in(elsewhere, worker.id, lease_ms)
        found |= more
        unreached = {
            run_id
            for run_id, task_id in runs.items()
            if run_id not in found and (more_away or away.intersection(self._likely(task_id)))
        }
        self._send_heartbeat(worker, lease_ms)
        if not self._link.reach.near(self._places.all):
            raise StoreUnavailable("no partition of the cluster responds, so no lease was renewed")
        gone = {run_id: found.get(run_id) for run_id in runs if found.get(run_id) != "held" and run_id not in unreached}
        return Renewal(gone=gone, unreached=unreached)

    def _send_heartbeat(self, worker: Worker, lease_ms: int) -> None:
        """Record the heartbeat in the first partition. While others respond, an unreachable one costs no lease."""
        definitions = self._registered.get(worker.id, ())
        request = self._heartbeat(worker, lease_ms, []) | {"names": [definition.name for definition in definitions]}
        try:
            self._link.reach.check(0)
            patience_s = BLOCKING_PATIENCE_S if self._link.partitions == 1 else SHORT_PATIENCE_S
            if not self._link.run_blocking("register_worker", 0, request, patience_s=patience_s):
                self._register_again(worker, definitions, lease_ms)
        except StoreUnavailable as error:
            if self._link.partitions == 1:
                raise
            self._link.reach.note(0, error)

    def _register_again(self, worker: Worker, definitions: Sequence[Definition], ttl_ms: int) -> None:
        """Register again after the servers lost the registration, so that new tasks get their limits."""
        limits = [(definition.name, limits_of(definition)) for definition in definitions]
        for partition in self._places.all:
            self._link.run_blocking("define_names", partition, {"limits": limits})
        self._link.run_blocking("register_worker", 0, self._heartbeat(worker, ttl_ms, _told(definitions)))

    def _likely(self, task_id: str) -> Sequence[int]:
        """The partitions to ask first for a task."""
        guess = self._places.guess(task_id)
        return self._places.all if guess is None else (guess,)

    def _renew_in(
        self, asked: Mapping[int, list[Run]], worker_id: str, lease_ms: int, claiming: Sequence[str] = ()
    ) -> tuple[dict[str, Any], set[int]]:
        """Renew runs by partition. Return run ID -> "held" or the task status, for tasks that exist there, and the
        partitions that did not respond. Raises StoreUnavailable if none did.
        """
        found: dict[str, Any] = {}
        away: set[int] = set()
        claim = {"claim": claiming[0]} if claiming else {}  # the first run ID is the ID of the request
        requests = {
            partition: {"worker": worker_id, "runs": runs, "lease_ms": lease_ms, **claim}
            for partition, runs in asked.items()
        }
        given = self._link.run_blocking_each("renew", requests)
        for partition, answers in given.items():
            if isinstance(answers, StoreUnavailable):
                away.add(partition)
                self._link.reach.note(partition, answers)
                continue
            self._link.reach.note(partition)
            for (run_id, _), answer in zip(asked[partition], answers, strict=True):
                if answer != b"gone":
                    found[run_id] = "held" if answer == b"held" else Status(answer.decode())
        if given and len(away) == len(given) and self._link.partitions == 1:
            raise given[0]
        return found, away

    def _heartbeat(self, worker: Worker, ttl_ms: int, definitions: list[str | Raw]) -> dict[str, Any]:
        """The request for lua/register_worker.lua, which adds the time at which the heartbeat expires."""
        text = as_text(_json(structs.replace(worker, heartbeat_until=0)))
        return {"worker": worker.id, "text": text, "ttl_ms": ttl_ms, "definitions": definitions}

    async def deregister(self, worker_id: str) -> None:
        self._registered.pop(worker_id, None)
        await self._retire([worker_id], silent_ms=False)
        await self._dismiss([worker_id])

    async def list_workers(self) -> list[Worker]:
        [texts] = await self._link.ask(0, ("HVALS", f"{self._link.names[0].prefix}workers"))
        return sorted(map(_worker, texts), key=lambda worker: worker.id)

    async def forget_silent(self) -> list[str]:
        request = {"lost_ms": FORGET_AFTER_MS}
        silent = {worker_id.decode() for worker_id in await self._link.run("lost_workers", 0, request)}
        for partition in self._places.all if silent else ():
            self._link.reach.check(partition)  # what they hold there is unknown
            busy = await self._link.run("busy_workers", partition, {"workers": sorted(silent)})
            silent -= {worker_id.decode() for worker_id in busy}
        if not silent:
            return []
        forgotten = await self._retire(sorted(silent), silent_ms=FORGET_AFTER_MS)
        await self._dismiss(forgotten)
        return forgotten

    async def definitions(self) -> list[Definition]:
        patience_s = None if self._link.partitions == 1 else 2 * SHORT_PATIENCE_S  # tasks elsewhere wait for it
        command = ("HVALS", f"{self._link.names[0].prefix}definitions")
        [texts] = await self._link.ask(0, command, patience_s=patience_s)
        known = self._decoded
        self._decoded = {text: known.get(text) or _definition(text) for text in texts}
        return sorted(self._decoded.values(), key=lambda definition: definition.name)

    async def _retire(self, worker_ids: list[str], *, silent_ms: int | bool) -> list[str]:
        clock = self._link.verified(0)
        request = {"workers": worker_ids, "lost_ms": silent_ms, "token": new_token(), "clock": clock}
        gone = await self._link.run("remove_workers", 0, request)
        return [worker_id.decode() for worker_id in gone]

    async def _dismiss(self, worker_ids: list[str]) -> None:
        """Remove workers without pending entries from the consumer groups of the task streams."""
        for partition in self._link.reach.near(self._places.all) if worker_ids else ():
            await self._link.run("remove_consumers", partition, {"workers": worker_ids})


def _told(definitions: Sequence[Definition]) -> list[str | Raw]:
    """Names and definitions for lua/register_worker.lua."""
    return [part for definition in definitions for part in (definition.name, as_text(_json(definition)))]


def limits_of(definition: Definition) -> tuple[int | bool, ...] | bool:
    """Return the limits that claims must respect, for lua/define_names.lua; False if there are none."""
    limits = (definition.concurrency, definition.concurrency_per_key, definition.rate_count, definition.rate_period_ms)
    if all(limit is None for limit in limits[:3]):
        return False
    return tuple(False if limit is None else limit for limit in limits)
