"""Every key there is, in one table. The reference page is generated from it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class KeyNames:
    """What the keys of one partition begin with, and the names that can be set."""

    prefix: str
    tasks: str  # streams of ready tasks: <tasks>:<queue>:<priority>
    group: str
    results: str
    dlq: str

    @classmethod
    def of(
        cls,
        prefix: str,
        *,
        tasks: str = "queue:tasks",
        group: str = "ade-workers",
        results: str = "queue:results",
        dlq: str = "queue:dlq",
    ) -> "KeyNames":
        return cls(prefix, prefix + tasks, group, prefix + results, prefix + dlq)


@dataclass(frozen=True, slots=True)
class KeyFamily:
    """Keys of one kind."""

    pattern: str  # behind the prefix of the partition; <word> stands for what differs from key to key
    type: str  # of the server, or ANY
    holds: str
    ends: str

    @property
    def fixed(self) -> str:
        """What all keys of the family begin with."""
        return self.pattern.partition("<")[0]


ANY = "any"  # it is kept as it was found
PLACEHOLDERS: Mapping[str, str] = {  # what a <word> of a pattern can be
    "id": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "ref": r"[0-9a-f]{8}-[0-9a-f-]{27}\.[A-Za-z0-9_.-]+",
    "queue": r"[A-Za-z0-9._-]+",
    "name": r"[A-Za-z0-9_.:-]+",
    "needs": r"[a-z0-9._,-]+",
    "key": r".*",
    "status": r"[a-z]+",
    "priority": r"[0-9]",
    "digest": r"[0-9a-f]+",
    "request": r"[^:]+",
    "token": r"[0-9a-f-]+",
    "namespace": r"[A-Za-z0-9._-]+",
    "resource": r".+",
    "owner": r".+",
    "kind": r"[^:]*",
    "agent": r"[A-Za-z0-9._:@/-]+",
    "inbox": r"[^{}]+",
    "rest": r".+",
}
_FOREVER, _WITH_TASK, _AT_COMMIT = "never", "with the task", "when its task goes on"

KEYS: Sequence[KeyFamily] = (
    # tasks
    KeyFamily(
        "task:<id>",
        "hash",
        "the record: `state` (MessagePack, see below), `detail`, `outcome` and `progress` (JSON), and `output:<run>`,"
        " how many lines a run has written",
        "pruned by the sweep after `sweep.retention_s`",
    ),
    KeyFamily("task:<id>:output", "stream", "lines that runs wrote with `ctx.log`", _WITH_TASK),
    KeyFamily("task:all", "zset", "all tasks by `seq`, their age", _WITH_TASK),
    KeyFamily(
        "task:index:state:<status>",
        "zset",
        "tasks of this status by `seq`; pending, running and completed ones, being many, have none",
        "when the status changes",
    ),
    KeyFamily("task:finished", "zset", "final tasks by the time they ended", _WITH_TASK),
    KeyFamily("task:results", "zset", "results by the time they are to be forgotten", "with the result"),
    KeyFamily("task:children:<id>", "zset", "tasks by `seq` that name this one as their parent", "with the children"),
    KeyFamily("task:key:<digest>", "string", "idempotency key: task id and digest of its arguments", _WITH_TASK),
    KeyFamily(
        "task:needs:<id>", "hash", "what a task waits for: `open` or `broken`", "when nothing is left to wait for"
    ),
    KeyFamily("task:waiting:<id>", "hash", "who waits for a task: `strict` or `tolerant`", "when it completes"),
    # where tasks stand
    KeyFamily(
        "queue:tasks:<queue>:<priority>",
        "stream",
        "tasks that were ready when they came, fields `id` and `name`; the group of the workers reads it, and an entry"
        " stays until its run ends",
        "entries: when the run ends; the stream: after a day without any, or with the last task of the queue",
    ),
    KeyFamily("queue:levels", "hash", "entries that wait in each stream, by `<priority>:<queue>`", _FOREVER),
    KeyFamily(
        "queue:line:<queue>:<name>",
        "zset",
        "tasks that came back (delayed, retried, stalled, released, unblocked) by priority and age",
        _AT_COMMIT,
    ),
    KeyFamily(
        "queue:line:<queue>:<name>+<needs>",
        "zset",
        "tasks that ask for the same capabilities, by priority and age",
        _AT_COMMIT,
    ),
    KeyFamily("queue:lines", "set", "the lines there are, as `<queue>:<name>`", "when a claim finds the line empty"),
    KeyFamily(
        "queue:asking",
        "set",
        "the lines of tasks that ask for capabilities, as `<queue>:<name>+<needs>`",
        "when a claim finds the line empty",
    ),
    KeyFamily("queue:back", "stream", "entries of the runs that were claimed out of a line", "when the run ends"),
    KeyFamily("queue:delayed", "zset", "tasks by the time they become due", "when they are due"),
    KeyFamily("queue:deadlines", "zset", "waiting tasks by their deadline", _AT_COMMIT),
    KeyFamily("queue:leases", "zset", "running tasks by the end of their lease", "when the run ends"),
    KeyFamily(
        "queue:handed", "hash", "outcomes that workers of other languages have handed in", "when they are settled"
    ),
    KeyFamily("queue:broken", "set", "tasks that wait in vain, for the sweep to decide on", "when it has"),
    KeyFamily("queue:key:<name>/<key>", "set", "running tasks that hold a concurrency key", "when the run ends"),
    KeyFamily(
        "queue:parked:<queue>:<name>/<key>",
        "zset",
        "tasks that wait for a concurrency key",
        "when the key is free",
    ),
    KeyFamily(
        "queue:parked:<queue>+<needs>:<name>/<key>",
        "zset",
        "the same of tasks that ask for the same capabilities",
        "when the key is free",
    ),
    KeyFamily(
        "queue:parking:<name>/<key>",
        "set",
        "queues (`<queue>+<needs>`) in which tasks wait for a key",
        "with the last of them",
    ),
    KeyFamily("queue:parkings", "set", "keys that somebody waits for, as `<name>/<key>`", "with the last of them"),
    KeyFamily("queue:depth", "hash", "unfinished tasks of each queue", "at zero"),
    KeyFamily("queue:running", "hash", "running tasks of each name", "at zero"),
    KeyFamily("tally", "hash", "number of tasks by `<queue>:<name>:<status>`", "at zero"),
    KeyFamily("queue:outbox", "stream", "news for tasks of other partitions (cluster)", "when they are delivered"),
    KeyFamily(
        "queue:unlinked", "hash", "tasks whose wait for other partitions is not known there yet (cluster)", "when it is"
    ),
    # for other programs
    KeyFamily(
        "queue:results",
        "stream",
        "one entry for each final outcome, if somebody has made the stream",
        "entries: when all groups have read them, or after 7 days",
    ),
    KeyFamily("queue:dlq", "stream", "dead letters", "when a letter is replayed, discarded or pruned"),
    # settings and limits
    KeyFamily("queues", "hash", "queues that are paused or have an admission limit", _FOREVER),
    KeyFamily(
        "limits", "hash", "limits of task names, as workers have registered them", "when a worker registers none"
    ),
    KeyFamily("rates", "hash", "state of the rate limits (GCRA), by name", _FOREVER),
    # ledgers
    KeyFamily("events", "stream", "the event log: all events of one call in one entry", "after `events.retention_s`"),
    KeyFamily("cursors", "hash", "how far each named reader of the event log has come (first partition)", _FOREVER),
    KeyFamily("effect:<digest>", "hash", "one entry of the ledger of `ctx.once`", "after `sweep.effect_retention_s`"),
    KeyFamily("effects", "zset", "effects that were done, by time", "with the effect"),
    KeyFamily("blob:<ref>", "string", "SHA-256 and content of a large payload", _WITH_TASK),
    KeyFamily("blobs:<id>", "set", "names of a task's blobs", _WITH_TASK),
    KeyFamily("blobs", "zset", "tasks with blobs, by when one was put or last seen to have its task", _WITH_TASK),
    KeyFamily("quarantine:<id>", "hash", "a record that could not be read, kept as it was", _WITH_TASK),
    KeyFamily("quarantined", "set", "ids of those", _WITH_TASK),
    KeyFamily("gone", "set", "tasks that were lost, so that each is told of once", _FOREVER),
    # locks
    KeyFamily(
        "lock:request:<namespace>",
        "hash",
        "the book of a namespace: who holds and who waits, by grant id (MessagePack)",
        "entries: with the grant or the wait",
    ),
    KeyFamily(
        "lock:held:<namespace>:<resource>",
        "zset",
        "who holds a resource, as `<seq>:<id>` by rank",
        "with the last grant",
    ),
    KeyFamily(
        "lock:line:<namespace>:<resource>",
        "zset",
        "who waits for it, as `<seq>:<id>` by rank",
        "with the last who waits",
    ),
    KeyFamily("lock:owner:<namespace>:<owner>", "zset", "ids of an owner's requests", "with the last of them"),
    KeyFamily(
        "lock:kind:<namespace>:<kind>",
        "zset",
        "ids of those who hold or wait for a resource of this kind, the part of its name before the colon",
        "with the last of them",
    ),
    KeyFamily(
        "lock:rate:<namespace>:<owner>",
        "string",
        "how far an owner has used up how often it may ask for locks (GCRA)",
        "a minute after it may ask as often as ever",
    ),
    KeyFamily(
        "lock:called",
        "set",
        "requests that were let in while nobody was there to hear of it, as `<namespace>:<id>`",
        "when somebody has asked for them",
    ),
    KeyFamily(
        "lock:leases",
        "zset",
        "requests of all namespaces by the end of their lease or wait, as `<namespace>:<id>`",
        "with the request",
    ),
    KeyFamily(
        "lock:marks",
        "hash",
        "of each namespace the newest seq and token, and when its book was last written (MessagePack)",
        _FOREVER,
    ),
    # agents
    KeyFamily(
        "agents", "hash", "agents and how much each may do at once, by id (MessagePack)", "when they are removed"
    ),
    KeyFamily("agent:units:<agent>", "zset", "who holds a unit of an agent, by the end of the lease", "with the lease"),
    # documents (all in the first partition)
    KeyFamily(
        "documents:<kind>",
        "hash",
        "documents of a kind by id: version, when it expires, and body in JSON (MessagePack)",
        "when they are removed, or by the sweep once they have expired",
    ),
    KeyFamily("document:ends", "zset", "documents that expire, as `<kind>:<id>` by when", "with the document"),
    KeyFamily(
        "document:marks", "hash", "of each kind the highest version that was removed; new ones begin above", _FOREVER
    ),
    KeyFamily(
        "document:rate:<key>",
        "string",
        "how far somebody has used up how often he may try (GCRA), and the request that did so last",
        "a minute after he may try as often as ever",
    ),
    # inboxes of conversations
    KeyFamily(
        "inbox:record:<inbox>",
        "hash",
        "one inbox: `head` (JSON), where it `stands` (MessagePack: version, consumer, number of items, when the oldest"
        " was put in, steady end of the lease of the batch that is out, when it was written), and its items (JSON) by"
        " their number",
        "items: when they are confirmed, removed or cleared; the inbox: after `sweep.inbox_retention_s` without items",
    ),
    KeyFamily("inbox:all", "zset", "all inboxes, for lists in the order of their ids", "with the inbox"),
    KeyFamily(
        "inbox:fed:<inbox>", "zset", "inboxes with items, by when the oldest was put in, of one consumer", "when empty"
    ),
    KeyFamily("inbox:held", "zset", "inboxes of which a batch is out, by the end of its lease", "with the batch"),
    KeyFamily("inbox:empty", "zset", "inboxes without items, by when they were last written", "with the inbox"),
    # processes (all in the first partition)
    KeyFamily("workers", "hash", "workers as they describe themselves, JSON", "600 s after the last heartbeat"),
    KeyFamily("workers:heartbeat", "zset", "workers by the end of their heartbeat", "with the worker"),
    KeyFamily("definitions", "hash", "what workers have registered about task names, JSON", _FOREVER),
    KeyFamily("schedules", "hash", "schedules, JSON", "when they are removed"),
    KeyFamily("schedules:due", "zset", "schedules by their next firing", "while they are paused or removed"),
    KeyFamily("duty", "hash", "which process performs a duty of the sweep", _FOREVER),
    # the store itself
    KeyFamily(
        "meta",
        "hash",
        "`partitions`, `epoch` (the life of the data), `ended` (the life before it, if it was lost), `tick` (the newest"
        " number given out), `last_event`, `looked` (when leases were last looked at)",
        _FOREVER,
    ),
    KeyFamily("claim:<request>", "string", "what a claim was given, should it be repeated", "with the lease"),
    KeyFamily("said:<token>", "string", "what a request was answered, should it be repeated", "after 10 minutes"),
    KeyFamily("confirms", "string", "counter that `WAIT` waits for (durability `strong`)", _FOREVER),
    KeyFamily("recount", "string", "how far a recount of all tasks has come", "when it is done, or after a minute"),
    KeyFamily("recount:tally", "hash", "what it has counted", "when it is done, or after a minute"),
    KeyFamily(
        "misplaced:<token>:<rest>",
        ANY,
        "a key of a wrong type that stood in the way, moved here",
        "when somebody removes it",
    ),
)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"<(\w+)>", pattern)
    texts = (PLACEHOLDERS[part] if number % 2 else re.escape(part) for number, part in enumerate(parts))
    return re.compile("".join(texts), re.DOTALL)


def families_of(key: str, names: KeyNames) -> list[KeyFamily]:
    """The families a key of this partition belongs to; exactly one, unless it is not ADE's."""
    for given, usual in ((names.tasks, "queue:tasks"), (names.results, "queue:results"), (names.dlq, "queue:dlq")):
        if key == given or key.startswith(f"{given}:"):
            key = names.prefix + usual + key[len(given) :]
            break
    if not key.startswith(names.prefix):
        return []
    rest = key[len(names.prefix) :]
    return [family for family in KEYS if _matcher(family.pattern).fullmatch(rest)]
