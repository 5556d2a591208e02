"""Checks of the invariants of the store, safe to run while workers continue.

A script compares a task record with the keys around it atomically, so a busy store raises no false alarm. Checks that
cannot be atomic (the log, other partitions) are repeated before a violation is reported.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ade.events.model import FINAL_EVENTS, Event
from ade.locks.rules import LOCK_EVENTS
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.codec import UNREADABLE, Record, logged_in, raw_records, read_events, read_task
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.scan import PartitionScan, ScanFindings, edges_afar

_PORTION = 200
_ENTRIES_KEPT = 2000
_LOOKS = 3  # checks of a task that changes meanwhile
_STATUS_AFTER = {
    "task.claimed": "running",
    "task.succeeded": "completed",
    "task.retry_scheduled": "pending",
    "task.released": "pending",
    "task.deferred": "pending",
    "task.recalled": "pending",
    "task.rescheduled": "pending",
    "task.queued": "pending",
    "task.stalled": "stalled",
    "task.failed": "failed",
    "task.cancelled": "cancelled",
    "task.rejected": "rejected",
}
SIDE_NOTES = frozenset({"alert", "task.reclaimed", "task.dlq", "task.discarded", *LOCK_EVENTS})


async def broken_invariants(link: RedisClient, places: Partitions) -> list[str]:
    """Return a sentence for each violation, only a few for each invariant."""
    violations: list[str] = []
    for partition in places.all:
        survey = PartitionScan(link, partition, mend=False)
        await survey.everything()
        if "one_type_for_each_key" not in survey.findings.counts:  # else records may not be readable
            await _RecordReader(survey).read_all()
            for sentence in await edges_afar(survey, mend=False):
                survey.findings.note("dependencies_can_complete", sentence)
        violations += survey.findings.all_sentences()
    return violations


class _RecordReader:
    """Reads every record and its events, and notes violations."""

    def __init__(self, survey: PartitionScan) -> None:
        self._link = survey.link
        self._partition = survey.partition
        self._findings: ScanFindings = survey.findings
        self._prefix = survey.names.prefix
        self._entries: dict[int, list[Event]] = {}  # log entries by tick
        self._runs: dict[str, str] = {}  # run id -> task id

    async def read_all(self) -> None:
        async for ids in self._ids():
            records = await raw_records(self._link, self._partition, ids)
            suspects = [record for record in records if self._faults_of(record)]
            await self._look_again([*suspects, *await self._not_told_by_log(records)])

    async def _ids(self) -> AsyncIterator[list[str]]:
        """All tasks ordered by age, so that tasks of the same log entry are read together."""
        after = "-inf"
        while True:
            command = (
                "ZRANGE",
                f"{self._prefix}task:all",
                after,
                "+inf",
                "BYSCORE",
                "LIMIT",
                0,
                _PORTION,
                "WITHSCORES",
            )
            [flat] = await self._link.ask(self._partition, command)
            yield [member.decode() for member in flat[::2]]
            if len(flat) < 2 * _PORTION:
                return
            after = f"({flat[-1].decode()}"

    def _faults_of(self, record: Record) -> list[tuple[str, str]]:
        """Faults of a record that are visible without its events."""
        task_id = record[0].decode()
        try:
            task = read_task(record)
        except UNREADABLE:
            return [("every_record_is_whole", f"task {task_id} has no detail that can be read")]
        faults = []
        if task.attempt > task.max_attempts:
            faults.append(
                ("attempts_within_bounds", f"task {task_id} has attempt {task.attempt} of {task.max_attempts}")
            )
        if task.status == "running" and self._runs.setdefault(str(task.run_id), task_id) != task_id:
            faults.append(
                ("one_lease_per_run", f"run {task.run_id} holds tasks {self._runs[str(task.run_id)]} and {task_id}")
            )
        return faults

    async def _look_again(self, suspects: Sequence[Record]) -> None:
        """Check suspects again; note only faults of a record that did not change while its events were read."""
        for task_id in dict.fromkeys(record[0].decode() for record in suspects):
            for _ in range(_LOOKS):
                before = await raw_records(self._link, self._partition, [task_id])
                self._entries.clear()
                untold = await self._not_told_by_log(before)
                if before == await raw_records(self._link, self._partition, [task_id]):
                    break
            else:
                continue
            for record in before:
                for fault in self._faults_of(record) + (self._log_faults(record) if untold else []):
                    self._findings.note(*fault)

    async def _not_told_by_log(self, records: Sequence[Record]) -> list[Record]:
        """The records that do not match their events."""
        ticks = {tick for record in records for tick in _logged(record)}
        missing = sorted(ticks - self._entries.keys())
        if len(self._entries) > _ENTRIES_KEPT:
            self._entries.clear()
            missing = sorted(ticks)
        for first in range(0, len(missing), _PORTION):
            portion = missing[first : first + _PORTION]
            commands = (("XRANGE", f"{self._prefix}events", f"{tick}-0", f"{tick}-0") for tick in portion)
            for tick, found in zip(portion, await self._link.ask(self._partition, *commands), strict=True):
                packed: list[Any] = [fields[1] for _, fields in found]
                self._entries[tick] = [event for each in packed for event in read_events(each, tick, 1)]
        return [record for record in records if self._log_faults(record)]

    def _log_faults(self, record: Record) -> list[tuple[str, str]]:
        task_id = record[0].decode()
        events = [
            event for tick in _logged(record) for event in self._entries.get(tick, []) if event.task_id == task_id
        ]
        ends = sum(event.type in FINAL_EVENTS for event in events)
        lives = 1 + sum(event.type == "task.replayed" for event in events)
        faults = [
            ("the_log_has_what_records_name", f"task {task_id} names an entry of the log that no longer exists")
            for tick in _logged(record)
            if tick % self._link.partitions == self._partition and not self._entries.get(tick)
        ][:1]
        if ends > lives:
            faults.append(("one_final_event", f"task {task_id} has {ends} final events in {lives} generation(s)"))
        status = _status(record)
        telling = [event for event in events if event.type not in SIDE_NOTES]
        if telling and not _fits(status, telling[-1]):
            last = telling[-1].type
            faults.append(("status_matches_log", f"task {task_id} is {status}, but its last event is {last}"))
        return faults


def _fits(status: str | None, event: Event) -> bool:
    """Whether a task can have this status after the event."""
    if event.type == "task.created":
        return status == event.payload.get("status", "pending")
    if event.type == "task.replayed":
        return status in ("pending", "submitted")  # a governed task waits for its approval again
    return status == _STATUS_AFTER.get(event.type, status)


def _logged(record: Record) -> list[int]:
    try:
        return logged_in(record[1])
    except UNREADABLE:
        return []


def _status(record: Record) -> str | None:
    try:
        return str(msgspec.msgpack.decode(record[1])[0])
    except UNREADABLE:
        return None
