"""The table of all Redis keys. The reference page is generated from it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ade.settings.sections import RedisSettings


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The key prefix of one partition, and the names that settings can change."""

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


def names_of(settings: RedisSettings, partition: int | None) -> KeyNames:
    """Return the names of one partition of a cluster, or of a single server (None).

    A cluster keeps keys with the same word in braces on one node.
    """
    tag = "" if partition is None else f"{{p{partition}}}:"
    prefix = settings.prefix + tag

    def named(given: str | None, usual: str) -> str:
        return prefix + usual if given is None else tag + given

    return KeyNames(
        prefix=prefix,
        tasks=named(settings.task_stream, "queue:tasks"),
        group=settings.group or "ade-workers",
        results=named(settings.result_stream, "queue:results"),
        dlq=named(settings.dlq_stream, "queue:dlq"),
    )


@dataclass(frozen=True, slots=True)
class WrongTypeRule:
    """What happens to a key that another program has replaced by one of another type, and what an operator must do."""

    action: str
    is_left: bool = False  # not moved aside: what it protected would be gone, so everything that needs it stops

    @property
    def text(self) -> str:
        return f"{'left there' if self.is_left else 'moved aside'}: {self.action}"


_REBUILT = WrongTypeRule("it is rebuilt")


@dataclass(frozen=True, slots=True)
class KeyFamily:
    """A family of keys: pattern, type, content, lifetime, and what happens to one of a wrong type."""

    pattern: str  # after the partition prefix; <word> is a placeholder
    type: str  # Redis type, or ANY
    holds: str
    ends: str

    @property
    def wrong_type(self) -> WrongTypeRule:
        return WRONG_TYPES.get(self.pattern, _REBUILT)

    @property
    def fixed(self) -> str:
        """The common start of all keys of the family."""
        return self.pattern.partition("<")[0]


ANY = "any"  # the type that the misplaced key had
PLACEHOLDERS: Mapping[str, str] = {  # placeholder -> regular expression
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
    "team": r".+",
    "ticket": r".+",
    "author": r".+",
    "tag": r".+",
    "kind": r"[^:]*",
    "agent": r"[A-Za-z0-9._:@/-]+",
    "inbox": r"[^{}]+",
    "rest": r".+",
}
LABELED = "labeled"  # field of `meta`: all tasks are in the indexes by author, tag, and resource
_FOREVER, _WITH_TASK, _AT_COMMIT = "never", "with the task", "when its task continues"

KEYS: Sequence[KeyFamily] = (
    # tasks
    KeyFamily(
        "task:<id>",
        "hash",
        "the record: `state` (MessagePack, see below), `detail`, `outcome`, and `progress` (JSON), and `output:<run>`,"
        " the number of lines a run has written",
        "pruned by the sweep after `sweep.retention_s`",
    ),
    KeyFamily("task:<id>:output", "stream", "lines that runs wrote with `ctx.log`", _WITH_TASK),
    KeyFamily("task:all", "zset", "all tasks by `seq`, their age", _WITH_TASK),
    KeyFamily(
        "task:index:state:<status>",
        "zset",
        "tasks of this status by `seq`; frequent statuses (pending, running, completed) have no index",
        "when the status changes",
    ),
    KeyFamily("task:index:team:<team>", "zset", "tasks of this team by `seq`", _WITH_TASK),
    KeyFamily("task:index:ticket:<ticket>", "zset", "tasks of this ticket by `seq`", _WITH_TASK),
    KeyFamily("task:index:author:<author>", "zset", "tasks of this author by `seq`", _WITH_TASK),
    KeyFamily("task:index:tag:<tag>", "zset", "tasks with this tag by `seq`", _WITH_TASK),
    KeyFamily("task:index:resource:<resource>", "zset", "tasks that change or lock this resource by `seq`", _WITH_TASK),
    KeyFamily("task:finished", "zset", "final tasks by end time", _WITH_TASK),
    KeyFamily("task:results", "zset", "results by expiry", "with the result"),
    KeyFamily("task:children:<id>", "zset", "child tasks by `seq`", "with the children"),
    KeyFamily("task:key:<digest>", "string", "idempotency key: task id and digest of its arguments", _WITH_TASK),
    KeyFamily("task:needs:<id>", "hash", "dependencies of a task: `open` or `broken`", "with its last dependency"),
    KeyFamily("task:waiting:<id>", "hash", "tasks that wait for a task: `strict` or `tolerant`", "when it completes"),
    # claimable and running tasks
    KeyFamily(
        "queue:tasks:<queue>:<priority>",
        "stream",
        "tasks that were ready when they were created, fields `id` and `name`; the workers' consumer group reads it,"
        " and an entry stays until its run ends",
        "entries: when the run ends; the stream: after a day without entries, or with the last task of the queue",
    ),
    KeyFamily("queue:levels", "hash", "waiting entries of each stream, by `<priority>:<queue>`", _FOREVER),
    KeyFamily(
        "queue:line:<queue>:<name>",
        "zset",
        "a lane: tasks that became ready later (delayed, retried, stalled, released, unblocked), by priority and age",
        _AT_COMMIT,
    ),
    KeyFamily(
        "queue:line:<queue>:<name>+<needs>",
        "zset",
        "a lane: tasks that require the same capabilities, by priority and age",
        _AT_COMMIT,
    ),
    KeyFamily("queue:lines", "set", "the lanes, as `<queue>:<name>`", "when a claim finds the lane empty"),
    KeyFamily(
        "queue:asking",
        "set",
        "the lanes of tasks that require capabilities, as `<queue>:<name>+<needs>`",
        "when a claim finds the lane empty",
    ),
    KeyFamily("queue:back", "stream", "entries of runs that were claimed from a lane", "when the run ends"),
    KeyFamily("queue:delayed", "zset", "tasks by due time", "when they are due"),
    KeyFamily("queue:deadlines", "zset", "waiting tasks by their deadline", _AT_COMMIT),
    KeyFamily("queue:leases", "zset", "running tasks by the end of their lease", "when the run ends"),
    KeyFamily("queue:handed", "hash", "outcomes reported by workers in other languages", "when they are settled"),
    KeyFamily("queue:broken", "set", "tasks with a broken dependency, for the sweep to decide", "when it has decided"),
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
        "the same for tasks that require the same capabilities",
        "when the key is free",
    ),
    KeyFamily(
        "queue:parking:<name>/<key>",
        "set",
        "queues (`<queue>+<needs>`) with tasks that wait for a key",
        "with the last of them",
    ),
    KeyFamily("queue:parkings", "set", "keys with waiting tasks, as `<name>/<key>`", "with the last of them"),
    KeyFamily("queue:depth", "hash", "unfinished tasks of each queue", "at zero"),
    KeyFamily("queue:running", "hash", "running tasks of each name", "at zero"),
    KeyFamily("tally", "hash", "number of tasks by `<queue>:<name>:<status>`", "at zero"),
    KeyFamily("queue:outbox", "stream", "messages for other partitions (cluster)", "when they are delivered"),
    KeyFamily(
        "queue:unlinked",
        "hash",
        "tasks whose dependencies are not registered in other partitions yet (cluster)",
        "when they are",
    ),
    # for other programs
    KeyFamily(
        "queue:results",
        "stream",
        "one entry for each final outcome, if a reader has created the stream",
        "entries: when all groups have read them, or after 7 days",
    ),
    KeyFamily("queue:dlq", "stream", "dead letters", "when a letter is replayed, discarded, or pruned"),
    # settings and limits
    KeyFamily("queues", "hash", "queues that are paused or have an admission limit", _FOREVER),
    KeyFamily("limits", "hash", "limits of task names, as workers registered them", "when a worker registers none"),
    KeyFamily("rates", "hash", "states of rate limits (GCRA), by name", _FOREVER),
    # ledgers
    KeyFamily("events", "stream", "the event log: all events of one call in one entry", "after `events.retention_s`"),
    KeyFamily("cursors", "hash", "the position of each reader of the event log (first partition)", _FOREVER),
    KeyFamily("effect:<digest>", "hash", "an entry of the ledger of `ctx.once`", "after its task, if old enough"),
    KeyFamily("effects", "zset", "finished effects, by time", "with the effect"),
    KeyFamily("blob:<ref>", "string", "SHA-256 and content of a large payload", _WITH_TASK),
    KeyFamily("blobs:<id>", "set", "names of a task's blobs", _WITH_TASK),
    KeyFamily("blobs", "zset", "tasks with blobs, by when one was stored or last found to have its task", _WITH_TASK),
    KeyFamily("quarantine:<id>", "hash", "a copy of a record that could not be decoded", _WITH_TASK),
    KeyFamily("quarantined", "set", "ids of those tasks", _WITH_TASK),
    KeyFamily("gone", "set", "lost tasks, so that each is logged once", _FOREVER),
    # locks
    KeyFamily(
        "lock:request:<namespace>",
        "hash",
        "the lock table of a namespace: requests by id (MessagePack)",
        "entries: with the request",
    ),
    KeyFamily(
        "lock:held:<namespace>:<resource>",
        "zset",
        "holders of a resource, as `<seq>:<id>` by rank",
        "with the last grant",
    ),
    KeyFamily(
        "lock:line:<namespace>:<resource>",
        "zset",
        "wait queue of a resource, as `<seq>:<id>` by rank",
        "with the last waiter",
    ),
    KeyFamily("lock:owner:<namespace>:<owner>", "zset", "ids of an owner's requests", "with the last of them"),
    KeyFamily(
        "lock:kind:<namespace>:<kind>",
        "zset",
        "ids of requests for a resource of this kind, the part of its name before the colon",
        "with the last of them",
    ),
    KeyFamily(
        "lock:rate:<namespace>:<owner>",
        "string",
        "state of an owner's rate limit (GCRA)",
        "a minute after it is fully available again",
    ),
    KeyFamily(
        "lock:called",
        "set",
        "requests that were granted or aborted while no process was waiting, as `<namespace>:<id>`",
        "when a process polls them",
    ),
    KeyFamily(
        "lock:leases",
        "zset",
        "requests of all namespaces by expiry, as `<namespace>:<id>`",
        "with the request",
    ),
    KeyFamily(
        "lock:marks",
        "hash",
        "highest seq and fencing token of each namespace, and when its lock table was last written (MessagePack)",
        _FOREVER,
    ),
    # agents
    KeyFamily("agents", "hash", "agents and their capacity, by id (MessagePack)", "when they are removed"),
    KeyFamily("agent:units:<agent>", "zset", "holders of an agent's units, by the end of the lease", "with the lease"),
    # documents (all in the first partition)
    KeyFamily(
        "documents:<kind>",
        "hash",
        "documents of a kind by id: version, expiry, and body in JSON (MessagePack)",
        "when they are removed, or by the sweep after they expire",
    ),
    KeyFamily("document:ends", "zset", "documents that expire, as `<kind>:<id>` by expiry", "with the document"),
    KeyFamily(
        "document:marks", "hash", "the highest deleted version of each kind; new documents start above it", _FOREVER
    ),
    KeyFamily(
        "document:rate:<key>",
        "string",
        "state of a rate limit (GCRA), and the last request that used it",
        "a minute after it is fully available again",
    ),
    # inboxes of conversations
    KeyFamily(
        "inbox:record:<inbox>",
        "hash",
        "one inbox: `head` (JSON), a summary in `stands` (MessagePack: version, consumer, number of items, when the"
        " oldest was added, steady end of the batch lease, when it was written), and its items (JSON) by their number",
        "items: when they are confirmed, removed, or cleared; the inbox: after `sweep.inbox_retention_s` without items",
    ),
    KeyFamily("inbox:all", "zset", "all inboxes, by id", "with the inbox"),
    KeyFamily(
        "inbox:fed:<inbox>", "zset", "inboxes of one consumer with items, by when the oldest was added", "when empty"
    ),
    KeyFamily("inbox:held", "zset", "inboxes with a leased batch, by the end of its lease", "with the batch"),
    KeyFamily("inbox:empty", "zset", "empty inboxes, by when they were last written", "with the inbox"),
    # processes (all in the first partition)
    KeyFamily("workers", "hash", "workers, JSON", "600 s after the last heartbeat"),
    KeyFamily("workers:heartbeat", "zset", "workers by the end of their heartbeat", "with the worker"),
    KeyFamily("definitions", "hash", "definitions of task names, as workers registered them, JSON", _FOREVER),
    KeyFamily("schedules", "hash", "schedules, JSON", "when they are removed"),
    KeyFamily("schedules:due", "zset", "schedules by their next firing", "while they are paused or removed"),
    KeyFamily("duty", "hash", "which process performs a maintenance job", _FOREVER),
    # the store itself
    KeyFamily(
        "meta",
        "hash",
        "`partitions`, `schema` (the version of the layout), `epoch` (the generation of the data), `ended` (the"
        " previous generation, if it was lost), `tick` (the newest tick), `last_event`, `looked` (when a sweep last"
        " checked the leases), `labeled` (all tasks are in the indexes by author, tag, and resource), `lease` (the"
        " longest lease lately), `continuous` (since when the clock has had no step, as processes have measured),"
        " `stepped` (its last step), `unreported` (until a sweep has logged it)",
        _FOREVER,
    ),
    KeyFamily("claim:<request>", "string", "the tasks of a claim, for a repeated request", "with the lease"),
    KeyFamily("said:<token>", "string", "the answer to a request, for a repeated request", "after 10 minutes"),
    KeyFamily("confirms", "string", "counter that `WAIT` waits for (durability `strong`)", _FOREVER),
    KeyFamily("recount", "string", "progress of a recount of all tasks", "when it is done, or after a minute"),
    KeyFamily("recount:tally", "hash", "counts of a recount", "when it is done, or after a minute"),
    KeyFamily(
        "misplaced",
        "hash",
        "keys of a wrong type that were moved aside or left in place, and what to do (MessagePack)",
        "with the key",
    ),
    KeyFamily(
        "misplaced:<token>:<rest>",
        ANY,
        "a key of a wrong type, moved here",
        "when an operator removes it",
    ),
)


_FRESH = WrongTypeRule("nothing to do, it fills again")
WRONG_TYPES: Mapping[str, WrongTypeRule] = {
    "task:<id>": WrongTypeRule("the task is lost: enqueue it again, or restore a backup"),
    "task:<id>:output": WrongTypeRule("the lines of the task are lost; nothing else depends on them"),
    "queue:handed": WrongTypeRule("reported outcomes of workers in other languages are lost: their tasks run again"),
    "queue:outbox": WrongTypeRule("messages between partitions are lost: the sweep sends what is missing"),
    "queue:results": WrongTypeRule("outcomes for other programs are lost: their readers must create the stream again"),
    "queues": WrongTypeRule("remove the key, then pause queues and set their limits again", is_left=True),
    "rates": _FRESH,
    "events": WrongTypeRule("the event log is lost and starts again: compare the audit copy with `ade audit verify`"),
    "cursors": WrongTypeRule("remove the key; every reader then reads the event log from its start", is_left=True),
    "effect:<digest>": WrongTypeRule("find out whether the side effect happened, then remove the key", is_left=True),
    "blob:<ref>": WrongTypeRule("the payload is lost: enqueue its task again"),
    "blobs:<id>": WrongTypeRule("nothing to do; payloads of this task may stay after it is pruned"),
    "blobs": WrongTypeRule("nothing to do; payloads without a task may stay"),
    "quarantine:<id>": WrongTypeRule("the copy of a damaged record is lost"),
    "quarantined": WrongTypeRule("the list of damaged records is lost"),
    "gone": WrongTypeRule("nothing to do; lost tasks may be logged again"),
    "lock:request:<namespace>": WrongTypeRule(
        "the locks of the namespace are lost: their holders stop at the next renewal"
    ),
    "lock:rate:<namespace>:<owner>": _FRESH,
    "lock:called": WrongTypeRule("nothing to do; processes find out when they poll"),
    "agents": WrongTypeRule("register the agents again; workers that start do so"),
    "agent:units:<agent>": _FRESH,
    "documents:<kind>": WrongTypeRule(
        "rules, accounts, or sessions are lost: restore the key from a backup; if it is removed instead, ADE goes on"
        " without them",
        is_left=True,
    ),
    "document:marks": WrongTypeRule("nothing to do; versions of deleted documents may occur again"),
    "document:rate:<key>": _FRESH,
    "inbox:record:<inbox>": WrongTypeRule("the messages of the conversation are lost: send them again"),
    "workers": _FRESH,
    "workers:heartbeat": _FRESH,
    "definitions": WrongTypeRule("nothing to do, workers register again at their next heartbeat"),
    "schedules": WrongTypeRule("the schedules are lost: create them again"),
    "duty": _FRESH,
    "meta": WrongTypeRule("nothing to do; it starts again, which is reported as lost data"),
    "claim:<request>": _FRESH,
    "said:<token>": _FRESH,
    "confirms": _FRESH,
    "recount": _FRESH,
    "recount:tally": _FRESH,
    "misplaced": _FRESH,
}
_WHOLE: Mapping[str, KeyFamily] = {family.pattern: family for family in KEYS if "<" not in family.pattern}
_BEGUN: Sequence[tuple[str, KeyFamily]] = sorted(
    ((family.fixed, family) for family in KEYS if "<" in family.pattern), key=lambda each: -len(each[0])
)
_OUTPUT = ":output"


def family_of(key: str, names: KeyNames) -> KeyFamily | None:
    """Return the family of a key; None if it is not ADE's. Quick, for scans of all keys."""
    rest = _rest_of(key, names)
    if rest is None or rest in _WHOLE:
        return None if rest is None else _WHOLE[rest]
    for begin, family in _BEGUN:
        if rest.startswith(begin) and (begin != "task:" or rest.endswith(_OUTPUT) == family.pattern.endswith(_OUTPUT)):
            return family
    return None


def _rest_of(key: str, names: KeyNames) -> str | None:
    """The part of a key after the prefix, with the usual names of streams; None if the key is not ADE's."""
    for given, usual in ((names.tasks, "queue:tasks"), (names.results, "queue:results"), (names.dlq, "queue:dlq")):
        if key == given or key.startswith(f"{given}:"):
            return usual + key[len(given) :]
    return key[len(names.prefix) :] if key.startswith(names.prefix) else None


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"<(\w+)>", pattern)
    texts = (PLACEHOLDERS[part] if number % 2 else re.escape(part) for number, part in enumerate(parts))
    return re.compile("".join(texts), re.DOTALL)


def families_of(key: str, names: KeyNames) -> list[KeyFamily]:
    """Return the families of a key: exactly one, or none if the key is not ADE's."""
    rest = _rest_of(key, names)
    return [] if rest is None else [family for family in KEYS if _matcher(family.pattern).fullmatch(rest)]
