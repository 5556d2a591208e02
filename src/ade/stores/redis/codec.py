"""Encoding and decoding of task records, changes, and events, and reads of records by ID.

The positions of task fields in the state array are defined here and in lua/lib/fields.lua.
"""

import hashlib
import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw, structs

from ade.accounts.model import SYSTEM
from ade.errors import PayloadTooLarge
from ade.events.model import Event
from ade.failures import unreadable_record
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.partitions import Partitions
from ade.tasks.changes import Change
from ade.tasks.lifecycle import FINAL, Status
from ade.tasks.model import LABELED_FIELDS, AfterFailure, Task, labels_of
from ade.tasks.model import as_text as needs_text

# Nesting limit of JSON: a payload that some reader cannot decode must not be stored.


_MOST_LEVELS = 990
_STRINGS, _BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"'), re.compile(rb"[\[\]{}]")


def check_depth(payload: Raw) -> None:
    """Raise PayloadTooLarge for JSON that is nested too deeply for some reader to decode."""
    if len(payload) < _MOST_LEVELS:
        return
    content = bytes(payload)
    if content.count(b"[") + content.count(b"{") > _MOST_LEVELS and _depth(content) > _MOST_LEVELS:
        raise PayloadTooLarge(
            f"arguments or result are nested too deeply for the store (about {_MOST_LEVELS} levels fit)"
        )


def _depth(content: bytes) -> int:
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", content)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


# Positions in the state array, counted from 1 as in Lua.
STATE_FIELDS = {
    "status": 1,
    "version": 4,
    "attempt": 5,
    "run_id": 6,
    "worker_id": 7,
    "lease_until": 8,
    "started_at": 9,
    "finished_at": 10,
    "waiting_on": 11,
    "discarded": 12,
    "deadline": 13,
    "concurrency_key": 14,
    "updated_at": 17,
    "queue": 20,
    "name": 21,
    "priority": 22,
    "run_after": 23,
    "generation": 24,
    "created_at": 25,
    "parent_id": 26,
}
EXPIRES, SEQ, IDEM, DIGEST, LOGGED, LENGTH, NEEDS, APPROVED = 15, 19, 27, 28, 29, 29, 30, 31
TEAM, TICKET = 32, 33
OUTCOME_FIELDS = (
    "result",
    "result_expired",
    "error",
    "reason",
    "exit_code",
    "output_ref",
    "timeouts",
    "throttles",
    "submitted_at",
    "approved_at",
)
IDENTITY_FIELDS = frozenset({"queue", "name", "idempotency_key", "args_digest"})
DETAIL_FIELDS = tuple(
    name
    for name in Task.__struct_fields__
    if name in ("id", "name") or (name not in STATE_FIELDS and name not in OUTCOME_FIELDS and name != "progress")
)
UNREADABLE = (msgspec.MsgspecError, RecursionError, TypeError, IndexError, KeyError)

Record = Sequence[Any]  # id, state, detail, outcome, progress, as scripts return them


def _part(name: str, fields: Sequence[str]) -> type[msgspec.Struct]:
    """Define a struct of some task fields that omits defaults when encoded."""
    known = {field.name: field for field in structs.fields(Task)}
    specs = [
        (field, known[field].type) if known[field].required else (field, known[field].type, known[field].default)
        for field in fields
    ]
    return msgspec.defstruct(name, specs, omit_defaults=True, frozen=True)


_Detail, _Outcome = _part("Detail", DETAIL_FIELDS), _part("Outcome", OUTCOME_FIELDS)
_detail_of, _outcome_of, _state_of = (attrgetter(*each) for each in (DETAIL_FIELDS, OUTCOME_FIELDS, STATE_FIELDS))
_STATE_PLACES = [place - 1 for place in STATE_FIELDS.values()]
_WAITING_ON = STATE_FIELDS["waiting_on"] - 1
_NO_OUTCOME = _Outcome()
_OUTCOME_SET, _DETAIL_SET = frozenset(OUTCOME_FIELDS), frozenset(DETAIL_FIELDS)
_PATCHED = frozenset(STATE_FIELDS) - {"status", "updated_at", "version", "waiting_on"}
_json = msgspec.json.Encoder().encode
_task = msgspec.json.Decoder(Task)
_outcome = msgspec.json.Decoder(_Outcome)
_state = msgspec.msgpack.Decoder(list[Any]).decode
_packed = msgspec.msgpack.Encoder().encode
_STATUSES = {str(status): status for status in Status}


def idem_digest(queue: str, name: str, key: str) -> str:
    """Return the digest of an idempotency key, which is part of a Redis key."""
    return hashlib.sha256(f"{queue}\0{name}\0{key}".encode()).hexdigest()[:40]


def _idem(task: Task) -> str | bool:
    return False if task.idempotency_key is None else idem_digest(task.queue, task.name, task.idempotency_key)


def as_text(content: bytes) -> Raw:
    """Pack bytes as a MessagePack string: the decoder of Lua scripts does not support the binary type."""
    size = len(content)
    if size < 32:
        head = bytes([0xA0 | size])
    elif size < 1 << 16:
        head = b"\xda" + size.to_bytes(2, "big")
    else:
        head = b"\xdb" + size.to_bytes(4, "big")
    return Raw(head + content)


def detail_of(task: Task) -> bytes:
    """Encode the fields of a task that rarely change."""
    return _json(_Detail(*_detail_of(task)))


def outcome_of(task: Task) -> bytes:
    """Encode the outcome fields of a task; empty if all have their defaults."""
    outcome = _Outcome(*_outcome_of(task))
    return b"" if outcome == _NO_OUTCOME else _json(outcome)


def new_task(
    task: Task, events: Sequence[Event], remote: Sequence[tuple[str, int]] = (), age: int | bool = False
) -> list[Any]:
    """Pack a task for lua/add.lua; `remote` are its dependencies in other partitions, `age` its tick if fixed."""
    check_depth(task.args)
    state: list[Any] = [False] * LENGTH
    for place, value in zip(_STATE_PLACES, _state_of(task), strict=True):
        if value is not None:
            state[place] = value
    state[_WAITING_ON] = 0
    state[IDEM - 1], state[DIGEST - 1] = _idem(task), task.args_digest or False
    state[LOGGED - 1] = ""
    labels = (task.team or False, task.ticket_ref or False) if task.team or task.ticket_ref else ()
    if task.needs or task.digest or labels:
        state.append(needs_text(task.needs) or False)  # at NEEDS; most tasks have none of these fields
    if task.digest or labels:
        state += (task.digest or False, *labels)  # at APPROVED, TEAM, TICKET
    tolerant = task.after_failure is AfterFailure.RUN
    needs: Sequence[str] = task.depends_on
    if remote:
        afar = {on for on, _ in remote}
        needs = [on for on in needs if on not in afar]
    packed_events = [packed_event(event) for event in events]
    always_fits = task.source == SYSTEM  # tasks of the system are exempt from the queue limit
    detail, found_by = as_text(detail_of(task)), labels_of(task) or False
    return [task.id, state, detail, needs, tolerant, packed_events, remote, age, always_fits, found_by]


def packed_event(event: Event) -> Raw:
    """Pack an event for the scripts."""
    payload = _json(event.payload).decode()
    return as_text(_packed([event.type, event.at, event.task_id, event.actor or False, payload]))


def result_expiry(task: Task) -> int | bool:
    """Return when the result of a completed task expires, or False."""
    if task.result is None or task.result_ttl_ms is None or task.finished_at is None:
        return False
    return task.finished_at + task.result_ttl_ms


def packed_change(change: Change, extra: dict[str, Any] | None = None) -> list[Any]:
    """Pack a change for lua/commit.lua; `extra` contains options that the store adds."""
    more = _more(change) | (extra or {})
    after, fields, guard = change.after, change.fields, change.guard
    patch: list[Any] = [STATE_FIELDS["status"], after.status, STATE_FIELDS["updated_at"], after.updated_at]
    for field in fields & _PATCHED:
        value = getattr(after, field)
        patch += (STATE_FIELDS[field], False if value is None else value)
    if not IDENTITY_FIELDS.isdisjoint(fields):
        patch += (IDEM, _idem(after), DIGEST, after.args_digest or False)
    if "needs" in fields or "digest" in fields:
        patch += (NEEDS, needs_text(after.needs) or False)
    if "digest" in fields:
        patch += (APPROVED, after.digest or False)
    outcome: Raw | bool = False
    if not _OUTCOME_SET.isdisjoint(fields):
        if after.result is not None:
            check_depth(after.result)
        outcome = as_text(outcome_of(after))
        patch += (EXPIRES, result_expiry(after))
    return [
        change.task_id,
        guard.version if guard.version is not None else False,
        guard.run_id or False,
        guard.lease_until if guard.lease_until is not None else False,
        patch,
        as_text(detail_of(after)) if "quarantine" in more or not _DETAIL_SET.isdisjoint(fields) else False,
        outcome,
        [packed_event(event) for event in change.events],
        more or False,
    ]


def is_revival(change: Change) -> bool:
    """Return whether a change makes a task in a final state run again."""
    return change.before.status in FINAL and change.after.status not in FINAL


def _more(change: Change) -> dict[str, Any]:
    """Options that only some changes need."""
    more: dict[str, Any] = {}
    if change.before.status is Status.RUNNING and "run_after" not in change.fields:
        more["due"] = True  # a running task was due, even if the clock has changed since
    if is_revival(change):
        more["depends_on"] = change.after.depends_on
        more["tolerant"] = change.after.after_failure is AfterFailure.RUN
    if not LABELED_FIELDS.isdisjoint(change.fields):
        more["lost_labels"], more["labels"] = labels_of(change.before), labels_of(change.after)
    return more


def read_task(record: Record) -> Task:
    """Decode the task of a record. Raises one of UNREADABLE."""
    return read_aged(record)[1]


def read_aged(record: Record) -> tuple[int, Task]:
    """Decode the `seq` and the task of a record. Raises one of UNREADABLE."""
    _, packed_state, detail, outcome, progress = record[:5]
    state = _state(packed_state)
    fields = _state_fields(state)
    if len(state) >= TICKET:
        fields["team"], fields["ticket_ref"] = state[TEAM - 1] or None, state[TICKET - 1] or None
    if progress is not None:
        fields["progress"] = Raw(progress)
    if outcome is not None:
        fields.update(structs.asdict(_outcome.decode(outcome)))
    return state[SEQ - 1], structs.replace(_task.decode(detail), **fields)


def _state_fields(state: list[Any]) -> dict[str, Any]:
    return {
        "status": _STATUSES[state[0]],
        "version": state[3],
        "attempt": state[4],
        "run_id": state[5] or None,
        "worker_id": state[6] or None,
        "lease_until": None if state[7] is False else state[7],
        "started_at": None if state[8] is False else state[8],
        "finished_at": None if state[9] is False else state[9],
        "waiting_on": state[10],
        "discarded": state[11],
        "deadline": state[12] or None,
        "concurrency_key": state[13] or None,
        "updated_at": state[16],
        "queue": state[19],
        "name": state[20],
        "priority": state[21],
        "run_after": state[22],
        "generation": state[23],
        "created_at": state[24],
        "parent_id": state[25] or None,
    }


def task_of(record: Record) -> Task:
    """Decode the task of a record; if it cannot be decoded, return its `remains_of`."""
    return aged_of(record)[1]


def aged_of(record: Record) -> tuple[int, Task]:
    """The same as `task_of`, with the `seq`."""
    try:
        return read_aged(record)
    except UNREADABLE as error:
        return int(_state(record[1])[SEQ - 1]), remains_of(record, f"{type(error).__name__}: {error}")


def remains_of(record: Record, why: str) -> Task:
    """Build a task from its state alone, when its arguments or outcome cannot be decoded."""
    fields = _state_fields(_state(record[1]))
    return Task(id=record[0].decode(), error=unreadable_record(why), **fields)


def logged_in(packed_state: bytes) -> list[int]:
    """Return the event log entries (ticks) with events of a task."""
    return [int(tick) for tick in _state(packed_state)[LOGGED - 1].split()]


def read_events(packed: bytes, first: int, step: int) -> list[Event]:
    """Decode the events of one log entry. All claims of one call share one item that names the worker once."""
    found: list[Event] = []

    def tell(kind: str, at: int, task_id: str, actor: str | None, payload: dict[str, object]) -> None:
        seq = first + len(found) * step
        found.append(Event(seq=seq, type=kind, at=at, task_id=task_id, actor=actor, payload=payload))

    for kind, at, *rest in msgspec.msgpack.decode(packed):
        if kind == "claims":
            worker, claims = rest
            for task_id, run_id, attempt in zip(claims[::3], claims[1::3], claims[2::3], strict=True):
                tell("task.claimed", at, task_id, None, {"attempt": attempt, "run_id": run_id, "worker": worker})
        else:
            task_id, actor, payload = rest
            body = msgspec.json.decode(payload) if isinstance(payload, str) else payload
            tell(kind, at, task_id, actor or None, body)
    return found


# Reads of whole records by ID.


FIELDS = ("state", "detail", "outcome", "progress")
_PORTION = 500


def pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Pair up the flat list in which the server returns a hash or members with scores."""
    return list(zip(flat[::2], flat[1::2], strict=True))


async def raw_records(link: RedisClient, partition: int, task_ids: Sequence[str]) -> list[Record]:
    """Read records of one partition in the given order; missing ones are left out."""
    prefix = link.names[partition].prefix
    found: list[Record] = []
    for first in range(0, len(task_ids), _PORTION):
        portion = task_ids[first : first + _PORTION]
        rows = await link.ask(partition, *(("HMGET", f"{prefix}task:{task_id}", *FIELDS) for task_id in portion))
        found += [(task_id.encode(), *row) for task_id, row in zip(portion, rows, strict=True) if row[0] is not None]
    return found


async def read_records(link: RedisClient, places: Partitions, task_ids: Sequence[str]) -> dict[str, Task]:
    """Read tasks by ID from all partitions; missing ones are left out."""
    tasks = await _read_where_known(link, places, task_ids)
    missing = [task_id for task_id in task_ids if task_id not in tasks]
    if missing and places.forget(missing):  # an edited draft can move to another partition
        tasks.update(await _read_where_known(link, places, missing))
    places.remember(tasks.values())
    return tasks


async def _read_where_known(link: RedisClient, places: Partitions, task_ids: Sequence[str]) -> dict[str, Task]:
    known = await places.of_all(list(dict.fromkeys(task_ids)))
    by_partition: dict[int, list[str]] = {}
    for task_id, partition in known.items():
        by_partition.setdefault(partition, []).append(task_id)
    tasks: dict[str, Task] = {}
    for partition, ids in by_partition.items():
        tasks.update({task.id: task for task in map(task_of, await raw_records(link, partition, ids))})
    return tasks
