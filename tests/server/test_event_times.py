"""Events over HTTP say when in one way, wherever a moment stands, and leave out what there is not."""

import json
from collections.abc import Iterator
from typing import Any

import ade
from tests.domain import Event, Role
from tests.server.conftest import PASSWORD, ServerHarness
from tests.server.test_streams import EVENTS, listening

LATER = "2031-01-31T12:00:00.000Z"
FIRST_MS = 1_000_000_000_000  # in the year 2001; no other number of these events is as large


def odd(told: object, at: str = "") -> Iterator[str]:
    """Places where a moment is a number, or where nothing is told as null."""
    if isinstance(told, dict):
        for name, value in told.items():
            if name != "seq":  # on Redis as large as a time
                yield from odd(value, f"{at}.{name}")
    elif isinstance(told, list):
        for value in told:
            yield from odd(value, f"{at}[]")
    elif told is None or (isinstance(told, int) and told >= FIRST_MS):
        yield f"{at}: {told}"


async def happenings(server: ServerHarness) -> None:
    """Something of every kind of event that holds moments."""
    await server.person("ann", Role.REVIEWER)
    await server.token(Role.REVIEWER)
    await server.task(run_at=LATER)
    wanted = {"delegate": "ann", "ends": 600}
    await server.person("rita", Role.REVIEWER, password=PASSWORD)
    session = await server.signed_in("rita")
    assert (await server.ask("POST", "/api/v1/delegations", wanted, by=None, headers=session)).status == 201


async def test_lists_streams_and_the_audit_copy_tell_moments_alike(server: ServerHarness) -> None:
    await happenings(server)
    listed = (await server.ask("GET", f"{EVENTS}?after=0&limit=200", by=Role.ADMIN)).json()["items"]
    by_type: dict[str, Any] = {event["type"]: event for event in listed}

    assert [*odd(listed)] == []
    assert by_type["task.created"]["payload"]["run_after"] == LATER
    assert by_type["token.created"]["payload"]["expires_at"].endswith("Z")
    assert {*by_type["delegation.created"]["payload"]} >= {"starts_at", "ends_at"}
    async with listening(server, f"{EVENTS}?after=0", token=await server.token(Role.ADMIN)) as listener:
        streamed = [json.loads((await listener.event())["data"]) for _ in listed]
    assert streamed == listed
    copied = (await server.ask("GET", "/api/v1/audit?after=0&limit=200", by=Role.ADMIN)).json()["items"]
    assert [line["event"] for line in copied] == listed


async def test_a_client_has_the_events_as_the_log_has_them(server: ServerHarness) -> None:
    await happenings(server)
    async with ade.connect(server.url, token=await server.token(Role.ADMIN)) as client:
        kept = await server.stores.events.read(0, 200)
        listed = (await client.list_events(after=0, limit=200)).items
        followed: list[Event] = []
        async for item in client.follow_events(after=0):
            assert isinstance(item, Event)
            followed.append(item)
            if len(followed) == len(kept):
                break
    assert [*listed] == [*kept] == followed
