"""Another program replaces a key by one of another type: ADE repairs it or says what to do. Nothing stops silently."""

import logging
from collections.abc import AsyncIterator

import pytest

from ade.stores.redis.keys import ANY, KEYS, KeyFamily, families_of
from tests.domain import Stores
from tests.stores.redis.test_keys import PLAIN, STORIES, Place, opened

WHAT = "key_of_wrong_type"
SAMPLES = {
    "id": "01890000-0000-7000-8000-000000000001",
    "ref": "01890000-0000-7000-8000-000000000001.result",
    "priority": "5",
    "digest": "ab12",
    "token": "cd34",
    "needs": "gpu",
}
FAMILIES = [family for family in KEYS if family.type != ANY]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    scene = await opened(PLAIN)
    yield scene
    await scene.stores.close()


async def key_like(place: Place, family: KeyFamily) -> str:
    """A key of this family that is in use, or could be."""
    names = place.link.names[0]
    for key in sorted(await place._keys(0)):
        if families_of(key, names) == [family]:
            return key
    rest = family.pattern
    for word, sample in SAMPLES.items():
        rest = rest.replace(f"<{word}>", sample)
    return names.prefix + rest.replace("<", "").replace(">", "")


async def said(stores: Stores) -> str:
    """What `ade doctor` prints about the store and its invariants."""
    health = await stores.maintenance.health()
    return "\n".join([*health.warnings, *await stores.maintenance.check_invariants()])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=[family.pattern for family in FAMILIES])
async def test_a_key_of_another_type_is_repaired_or_reported(
    place: Place, family: KeyFamily, caplog: pytest.LogCaptureFixture
) -> None:
    for story in STORIES[1:]:  # the first one damages something else
        await story(place)
    key = await key_like(place, family)
    assert [each.pattern for each in families_of(key, place.link.names[0])] == [family.pattern]
    await place.command("DEL", key)
    await place.command(*(("RPUSH", key, "of another program") if family.type != "list" else ("SET", key, "x")))

    with caplog.at_level(logging.ERROR, "ade.store"):
        await place.stores.maintenance.checkpoint(only_keys=True)

    [line] = [record.__dict__ for record in caplog.records if record.__dict__["event"] == WHAT]
    assert (line["fields"]["key"], line["fields"]["hint"]) == (key, family.wrong_type.action)
    [alert] = [event for event in await place.stores.events.newest(1_000) if event.payload.get("what") == WHAT]
    assert (alert.payload["key"], alert.payload["action"]) == (key, family.wrong_type.action)
    assert key in await said(place.stores)
    after = (await place.command("TYPE", key)).decode()
    assert after == "list" if family.wrong_type.is_left else after in ("none", family.type)
    await place.stores.maintenance.checkpoint(only_keys=True)
    assert len([record for record in caplog.records if record.__dict__["event"] == WHAT]) == 1, "it is told once"
