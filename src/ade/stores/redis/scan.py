"""Scans of all keys of a partition, in portions small enough for a busy server."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ade.errors import StoreCorrupt, StoreError
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.errors import ServerError
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import pairs
from ade.stores.redis.key_types import find_wrong_keys, mend_wrong_keys, scan_keys

_IDS = 50  # tasks per script call
_MEMBERS, _RECOUNTED = 200, 500
_RECOUNTS = 3  # restarts when another process recounts too
_SENTENCES = 5  # kept per invariant

# Key or start of a key after the prefix -> kind in lua/lib/orphan_checks.lua, Redis type.
_SINGLE = {
    "task:all": ("all", "zset"),
    "task:finished": ("finished", "zset"),
    "task:results": ("results", "zset"),
    "queue:leases": ("leases", "zset"),
    "queue:deadlines": ("deadlines", "zset"),
    "queue:delayed": ("delayed", "zset"),
    "queue:broken": ("broken", "set"),
    "queue:back": ("back", "stream"),
    "lock:leases": ("lock", "zset"),
    "lock:called": ("lock", "set"),
    "document:ends": ("document", "zset"),
    "inbox:all": ("inbox", "zset"),
    "inbox:held": ("inbox", "zset"),
    "inbox:empty": ("inbox", "zset"),
}
_FAMILIES = {
    "task:index:state:": ("state", "zset"),
    "task:index:team:": ("team", "zset"),
    "task:index:ticket:": ("ticket", "zset"),
    "task:index:author:": ("author", "zset"),
    "task:index:tag:": ("tag", "zset"),
    "task:index:resource:": ("resource", "zset"),
    "task:children:": ("children", "zset"),
    "task:key:": ("idem", "string"),
    "task:waiting:": ("waiting", "hash"),
    "task:needs:": ("needs", "hash"),
    "queue:line:": ("line", "zset"),
    "queue:parked:": ("parked", "zset"),
    "queue:key:": ("holders", "set"),
    "lock:request:": ("lock", "hash"),
    "lock:held:": ("lock", "zset"),
    "lock:line:": ("lock", "zset"),
    "lock:owner:": ("lock", "zset"),
    "lock:kind:": ("lock", "zset"),
    "lock:rate:": ("", "string"),
    "agent:units:": ("agent", "zset"),
    "documents:": ("document", "hash"),
    "document:rate:": ("", "string"),
    "inbox:record:": ("inbox_record", "hash"),
    "inbox:fed:": ("inbox", "zset"),
}
_OTHERS = {
    "meta": "hash",
    "tally": "hash",
    "queue:depth": "hash",
    "queue:running": "hash",
    "queue:levels": "hash",
    "queue:lines": "set",
    "queue:asking": "set",
    "queue:parkings": "set",
    "queue:unlinked": "hash",
    "queue:handed": "hash",
    "queue:outbox": "stream",
    "events": "stream",
    "gone": "set",
    "lock:marks": "hash",
    "agents": "hash",
    "document:marks": "hash",
}
_BESIDE = {  # kinds without tasks: the script that checks their keys, and the invariant
    "lock": ("scan_locks", "every_lock_has_its_place"),
    "document": ("scan_documents", "every_document_is_whole"),
    "inbox": ("scan_inboxes", "every_inbox_is_whole"),
    "inbox_record": ("scan_inboxes", "every_inbox_is_whole"),
}


@dataclass(frozen=True, slots=True)
class KeyReferences:
    """A key that refers to tasks or other objects; an empty `kind` means that only its type is checked."""

    kind: str
    type: str
    key: str
    argument: str = ""


@dataclass(slots=True)
class ScanFindings:
    """Violations by invariant: their number, and a few examples as sentences."""

    counts: Counter[str] = field(default_factory=Counter)
    sentences: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[str, int] = field(default_factory=dict)  # tasks without a record -> the partition that refers to them

    def note(self, invariant: str, sentence: str) -> None:
        self.counts[invariant] += 1
        if len(self.sentences[invariant]) < _SENTENCES and sentence not in self.sentences[invariant]:
            self.sentences[invariant].append(sentence)

    def all_sentences(self) -> list[str]:
        """All examples, each with its invariant."""
        return [f"{name}: {sentence}" for name in sorted(self.sentences) for sentence in self.sentences[name]]


class PartitionScan:
    """One scan of a partition. With `mend`, faults are repaired from the records."""

    def __init__(self, link: RedisClient, partition: int, *, mend: bool) -> None:
        self.link = link
        self.partition = partition
        self.mend = mend
        self.names = link.names[partition]
        self.findings = ScanFindings()
        self.unresolved: list[str] = []
        self.afar: list[KeyReferences] = []  # keys that can contain dependencies across partitions
        self._ids: list[str] = []
        self._levels: set[str] = set()
        self._left: set[str] = set()  # keys of a wrong type that were not moved aside
        self._effects: list[str] = []  # digests of the entries of the effect ledger

    async def everything(self) -> None:
        """Check types, records, the keys around them, due indexes, waiting counts, and counters, in this order.

        With `mend`, keys of a wrong type are moved aside first.
        """
        look_for = mend_wrong_keys if self.mend else find_wrong_keys
        wrong = await look_for(self.link, self.partition)
        for each in wrong:
            self.findings.note("one_type_for_each_key", each.sentence())
        if wrong and not self.mend:
            return  # scripts would fail on keys of a wrong type
        self._left = {each.key for each in wrong if not each.aside}
        async for keys in scan_keys(self.link, self.partition):
            await self._look_at(keys)
        await self._look_at_tasks()
        await self._look_at_sides()
        await self._look_at_levels()
        await self.recount()

    async def look_at(self, ids: Sequence[str], **known: Any) -> list[str]:
        """Check tasks by ID. Return those that cannot be repaired until the partitions of `remote` are known."""
        _, unresolved = await self._call({"ids": ids, **known})
        return unresolved

    async def _look_at(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self._left:
                continue
            task_id, stand = self._meaning(key)
            if task_id:
                self._ids.append(task_id)
                if len(self._ids) == _IDS:
                    await self._look_at_tasks()
            elif stand is not None:
                await self._look_into(stand)

    def _meaning(self, key: str) -> tuple[str | None, KeyReferences | None]:
        """The task whose record the key is, or the references it contains; neither for other keys."""
        names = self.names
        if key.startswith(f"{names.tasks}:"):
            queue, _, priority = key[len(names.tasks) + 1 :].rpartition(":")
            self._levels.add(f"{priority}:{queue}")
            return None, KeyReferences("stream", "stream", key)
        if key == names.dlq:
            return None, KeyReferences("letters", "stream", key)
        rest = key[len(names.prefix) :]
        if rest in _SINGLE:
            return None, KeyReferences(*_SINGLE[rest], key)
        if rest in _OTHERS:
            return None, KeyReferences("", _OTHERS[rest], key)
        for family, (kind, key_type) in _FAMILIES.items():
            if rest.startswith(family):
                return None, KeyReferences(kind, key_type, key, rest[len(family) :])
        word, _, name = rest.partition(":")
        if word == "effect":
            self._effects.append(name)
        return (name if word == "task" and ":" not in name else None), None

    async def _look_into(self, stand: KeyReferences) -> None:
        if self.link.partitions > 1 and stand.kind in ("waiting", "needs"):
            self.afar.append(stand)
        if not stand.kind:
            return
        if stand.kind == "agent":
            await self._look_at_units(stand)
        elif stand.kind == "inbox_record":
            await self._look_beside(stand, [])
        elif stand.type == "string":
            await self._call({"orphans": [[stand.kind, stand.key, stand.argument, [""]]]})
        elif stand.type == "stream":
            await self._look_into_stream(stand)
        else:
            async for members in self._members(stand):
                if stand.kind in _BESIDE:
                    await self._look_beside(stand, [_text(each) for each in members])
                else:
                    await self._call({"orphans": [[stand.kind, stand.key, stand.argument, members]]})

    async def _look_beside(self, stand: KeyReferences, members: list[str]) -> None:
        """Check keys of locks, documents, or inboxes with the script of their kind."""
        script, invariant = _BESIDE[stand.kind]
        request = {"key": stand.key[len(self.names.prefix) :], "members": members, "repair": self.mend}
        for sentence in await self.link.run(script, self.partition, request):
            self.findings.note(invariant, sentence.decode(errors="replace"))

    async def _look_at_units(self, stand: KeyReferences) -> None:
        request = {"verb": "check", "agent": stand.argument, "repair": self.mend}
        for sentence in await self.link.run("agent", self.partition, request):
            self.findings.note("every_unit_has_its_agent", sentence.decode(errors="replace"))

    async def _members(self, stand: KeyReferences) -> AsyncIterator[list[bytes]]:
        verb, step = {"zset": ("ZSCAN", 2), "hash": ("HSCAN", 2), "set": ("SSCAN", 1)}[stand.type]
        cursor: Any = "0"
        while True:
            [(cursor, found)] = await self.link.ask(self.partition, (verb, stand.key, cursor, "COUNT", _MEMBERS))
            members = list(found)[::step]
            for first in range(0, len(members), _MEMBERS):
                yield members[first : first + _MEMBERS]
            if int(cursor) == 0:
                return

    async def _look_into_stream(self, stand: KeyReferences) -> None:
        start = "-"
        while True:
            [found] = await self.link.ask(self.partition, ("XRANGE", stand.key, start, "+", "COUNT", _MEMBERS))
            entries = [entry_id for entry_id, _ in found]
            if entries:
                await self._call({"orphans": [[stand.kind, stand.key, stand.argument, entries]]})
            if len(entries) < _MEMBERS:
                break
            start = f"({entries[-1].decode()}"
        await self._look_at_pending(stand)

    async def _look_at_pending(self, stand: KeyReferences) -> None:
        start = "-"
        while True:
            command = ("XPENDING", stand.key, self.names.group, start, "+", _MEMBERS)
            try:
                [found] = await self.link.ask(self.partition, command)
            except StoreCorrupt:
                raise
            except StoreError as error:
                if isinstance(error.__cause__, ServerError) and "NOGROUP" in str(error):
                    return
                raise
            entries = [entry[0] for entry in found]
            if entries:
                await self._call({"pending": [[stand.key, entries]]})
            if len(entries) < _MEMBERS:
                return
            start = f"({entries[-1].decode()}"

    async def _look_at_tasks(self) -> None:
        ids, self._ids = self._ids, []
        if ids:
            self.unresolved += await self.look_at(ids)

    async def _call(self, request: dict[str, Any]) -> tuple[list[Any], list[str]]:
        faults, gone, unresolved = await self.link.run(
            "repair", self.partition, {**_texts(request), "repair": self.mend}
        )
        for invariant, sentence in faults:
            self.findings.note(invariant.decode(), sentence.decode(errors="replace"))
        self.findings.gone.update({task_id.decode(errors="replace"): self.partition for task_id in gone})
        return faults, [task_id.decode() for task_id in unresolved]

    async def _look_at_levels(self) -> None:
        request = {"streams": sorted(self._levels), "repair": self.mend}
        for sentence in await self.link.run("check_waiting_counts", self.partition, request):
            self.findings.note("levels_match_streams", sentence.decode(errors="replace"))

    async def _look_at_sides(self) -> None:
        for first in range(0, max(len(self._effects), 1), _MEMBERS):
            request = {"effects": self._effects[first : first + _MEMBERS], "repair": self.mend}
            for sentence in await self.link.run("check_due_indexes", self.partition, request):
                self.findings.note("what_is_due_is_listed", sentence.decode(errors="replace"))

    async def recount(self) -> None:
        """Count all tasks from scratch while workers continue. The recount that started last wins; others stop."""
        for _ in range(_RECOUNTS):
            token, after = new_token(), 0
            while True:
                request = {"token": token, "after": after, "limit": _RECOUNTED, "repair": self.mend}
                word, *answer = await self.link.run("rebuild_counters", self.partition, request)
                if word != b"going":
                    break
                after = int(answer[0])
            if word == b"counted":
                for sentence in answer[0]:
                    self.findings.note("counters_match_records", sentence.decode(errors="replace"))
                return


def _texts(request: dict[str, Any]) -> dict[str, Any]:
    """Convert names to text: the decoder of Lua scripts does not support the MessagePack binary type."""
    if "orphans" in request:
        request["orphans"] = [[*head, [_text(each) for each in named]] for *head, named in request["orphans"]]
    if "pending" in request:
        request["pending"] = [[key, [_text(each) for each in entries]] for key, entries in request["pending"]]
    return request


def _text(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")


# Dependencies between tasks of different partitions, checked from both sides.


async def edges_afar(survey: PartitionScan, *, mend: bool) -> list[str]:
    """Return sentences about dependencies that only one side records. With `mend`, the sweep completes them.

    Messages travel through an outbox and are applied before they leave it. So a dependency is wrong only if one side
    lacks it, the outbox is empty, and the other side still has it after that.
    """
    sentences: list[str] = []
    for stand in survey.afar:
        [words] = await survey.link.ask(survey.partition, ("HGETALL", stand.key))
        for other, word in pairs(words):
            _, at, place = word.decode().partition("@")
            if at and await _is_one_sided(survey, stand, other, int(place)):
                sentences.append(f"{stand.key} names {other.decode()} of partition {place}, which does not know")
                if mend:
                    await _mend(survey, stand, other)
    return sentences


async def _is_one_sided(survey: PartitionScan, stand: KeyReferences, other: bytes, place: int) -> bool:
    link, prefix = survey.link, survey.link.names[place].prefix
    family = "waiting" if stand.kind == "needs" else "needs"
    if (
        place >= link.partitions
        or (await link.ask(place, ("HEXISTS", f"{prefix}task:{family}:{other.decode()}", stand.argument)))[0]
    ):
        return False
    [posted] = await link.ask(place, ("XLEN", f"{prefix}queue:outbox"))
    unlinked, still = await link.ask(
        survey.partition,
        ("HEXISTS", f"{survey.names.prefix}queue:unlinked", stand.argument if stand.kind == "needs" else ""),
        ("HEXISTS", stand.key, other),
    )
    return not posted and not unlinked and bool(still)


async def _mend(survey: PartitionScan, stand: KeyReferences, other: bytes) -> None:
    if stand.kind == "needs":  # the sweep reads the status from the other partition
        await survey.link.ask(survey.partition, ("HSET", f"{survey.names.prefix}queue:unlinked", stand.argument, 0))
    else:
        await survey.link.ask(survey.partition, ("HDEL", stand.key, other))
