"""A request with a key that takes long."""

import asyncio

from ade.server.pipeline import KeyHeartbeat


async def test_it_is_renewed_again_and_again_until_it_ends() -> None:
    times = 0
    thrice = asyncio.Event()

    async def renew() -> None:
        nonlocal times
        times += 1
        if times == 3:
            thrice.set()

    renewing = KeyHeartbeat(renew, 0.001)
    async with asyncio.timeout(60):
        await thrice.wait()
        await renewing.end()
    assert times >= 3


async def test_what_is_under_way_at_the_end_is_waited_for() -> None:
    """Else it would get in the way of who keeps the answer."""
    begun, may_end, is_over = asyncio.Event(), asyncio.Event(), False

    async def renew() -> None:
        nonlocal is_over
        begun.set()
        await may_end.wait()
        is_over = True

    renewing = KeyHeartbeat(renew, 0.001)
    async with asyncio.timeout(60):
        await begun.wait()
        ending = asyncio.create_task(renewing.end())
        await asyncio.sleep(0)
        assert not ending.done()
        may_end.set()
        await ending
    assert is_over


async def test_what_is_over_soon_is_never_renewed() -> None:
    renewed = 0

    async def renew() -> None:
        nonlocal renewed
        renewed += 1

    await KeyHeartbeat(renew, 60).end()
    assert renewed == 0
