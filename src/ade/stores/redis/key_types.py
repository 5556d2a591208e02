"""Keys of a wrong type, which another program has written: found, moved aside, and reported."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import msgspec

from ade.events.model import ALERT, Event
from ade.logs import Log
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import packed_event, pairs
from ade.stores.redis.keys import ANY, KeyFamily, KeyNames, family_of

_KEYS = 500  # COUNT of one SCAN step
_MOST_REPORTED = 100  # in one check; the next one reports more
WHAT = "key_of_wrong_type"  # of the alert and the log line
_log = Log("ade.store")


@dataclass(frozen=True, slots=True)
class WrongKey:
    """A key of a wrong type. `aside` is where it was moved to; empty if it is left in place."""

    key: str
    found: str
    family: KeyFamily
    aside: str = ""

    def sentence(self) -> str:
        """What is wrong, what happened or will happen, and what to do."""
        rule = self.family.wrong_type
        fate = f"moved to {self.aside}: {rule.action}" if self.aside else rule.text
        return f"{self.key} is a {self.found}, not a {self.family.type}; {fate}"


class _Reported(msgspec.Struct, array_like=True):
    """An entry of the hash `misplaced`: what `ade doctor` shows until an operator has removed the key."""

    key: str
    found: str
    sentence: str


_reported = msgspec.msgpack.Decoder(_Reported).decode


async def scan_keys(link: RedisClient, partition: int) -> AsyncIterator[list[str]]:
    """All keys of a partition, in portions."""
    names = link.names[partition]
    begins = [names.prefix]
    own = (f"{names.tasks}:", names.dlq, names.results)
    begins += [each for each in own if not each.startswith(names.prefix)]
    for begin in begins:
        cursor: object = "0"
        while True:
            command = ("SCAN", cursor, "MATCH", f"{escaped(begin)}*", "COUNT", _KEYS)
            [(cursor, found)] = await link.ask(partition, command)
            yield [key.decode(errors="surrogateescape") for key in found]
            if cursor == b"0":
                break


def escaped(begin: str) -> str:
    """Escape the special characters of a MATCH pattern."""
    return "".join(f"\\{character}" if character in "*?[]\\^" else character for character in begin)


async def wrong_among(link: RedisClient, partition: int, keys: Sequence[str]) -> list[WrongKey]:
    """Return the keys among these that have a wrong type. Keys that ADE does not use are none of its business."""
    names = link.names[partition]
    known = [(key, family) for key in keys if (family := family_of(key, names)) is not None and family.type != ANY]
    types = await link.ask(partition, *(("TYPE", key) for key, _ in known)) if known else []
    return [
        WrongKey(key, found.decode(), family)
        for (key, family), found in zip(known, types, strict=True)
        if found.decode() not in (family.type, "none")
    ]


async def find_wrong_keys(link: RedisClient, partition: int) -> list[WrongKey]:
    """Read the types of all keys of a partition."""
    return [wrong async for keys in scan_keys(link, partition) for wrong in await wrong_among(link, partition, keys)]


async def mend_wrong_keys(link: RedisClient, partition: int) -> list[WrongKey]:
    """Move keys of a wrong type aside, except those that protect something, and report each once.

    Returns them. It changes them without scripts, which would fail on such keys.
    """
    names = link.names[partition]
    found = sorted(await find_wrong_keys(link, partition), key=lambda wrong: wrong.family.pattern != "misplaced")
    mended: list[WrongKey] = []
    fresh: list[WrongKey] = []
    for wrong in found[:_MOST_REPORTED]:
        after = wrong
        if not wrong.family.wrong_type.is_left:
            after = WrongKey(wrong.key, wrong.found, wrong.family, _aside(wrong.key, names))
            [is_moved] = await link.ask(partition, ("RENAMENX", wrong.key, after.aside))
            if not is_moved:
                continue
        mended.append(after)
        report = msgspec.msgpack.encode(_Reported(after.aside or after.key, after.found, after.sentence()))
        [is_new] = await link.ask(partition, ("HSETNX", _reports(names), after.aside or after.key, report))
        if is_new:
            fresh.append(after)
    for wrong in fresh:
        _log.error(
            WHAT,
            key=wrong.key,
            found=wrong.found,
            expected=wrong.family.type,
            moved_to=wrong.aside or None,
            hint=wrong.family.wrong_type.action,
        )
    if fresh:
        await _log_events(link, partition, fresh)
    await _drop_removed(link, partition)
    return mended


async def reported_wrong_keys(link: RedisClient, partition: int) -> list[str]:
    """Return sentences about keys that were moved aside or left in place and that no operator has removed yet."""
    return [report.sentence for report in await _standing(link, partition)]


def _aside(key: str, names: KeyNames) -> str:
    return f"{names.prefix}misplaced:{new_token()}:{key.removeprefix(names.prefix)}"


def _reports(names: KeyNames) -> str:
    return f"{names.prefix}misplaced"


async def _log_events(link: RedisClient, partition: int, wrong: Sequence[WrongKey]) -> None:
    events = [
        Event(
            type=ALERT,
            at=link.clock.now(),
            payload={
                "what": WHAT,
                "key": each.key,
                "found": each.found,
                "expected": each.family.type,
                "moved_to": each.aside or None,
                "action": each.family.wrong_type.action,
            },
        )
        for each in wrong
    ]
    request = {"writes": [], "events": [packed_event(each) for each in events], "notifies": False}
    await link.run("document_write", partition, {**request, "token": new_token()})


async def _standing(link: RedisClient, partition: int) -> list[_Reported]:
    """The reported keys that still are what was found."""
    names = link.names[partition]
    [kind] = await link.ask(partition, ("TYPE", _reports(names)))
    if kind != b"hash":
        return []
    [flat] = await link.ask(partition, ("HGETALL", _reports(names)))
    reports = [_reported(packed) for _, packed in pairs(flat)]
    types = await link.ask(partition, *(("TYPE", report.key) for report in reports)) if reports else []
    return [report for report, kind in zip(reports, types, strict=True) if kind.decode() == report.found]


async def _drop_removed(link: RedisClient, partition: int) -> None:
    names = link.names[partition]
    standing = {report.key for report in await _standing(link, partition)}
    [listed] = await link.ask(partition, ("HKEYS", _reports(names)))
    gone = [key for key in listed if key.decode(errors="surrogateescape") not in standing]
    if gone:
        await link.ask(partition, ("HDEL", _reports(names), *gone))
