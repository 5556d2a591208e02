"""Wake-ups: who waits looks again at once when something happened, and now and then anyway."""

import asyncio

from tests.approvals.rule_changes import subscribed
from tests.conformance.scene import Scene
from tests.domain import DONE, RULES, WORK


async def test_a_hint_wakes_all_who_wait_for_its_topic(scene: Scene) -> None:
    wakeups = scene.stores.wakeups
    seen = wakeups.generation(WORK)
    waiting = [asyncio.create_task(wakeups.wait(WORK, seen, 60)) for _ in range(3)]
    await asyncio.sleep(0)

    wakeups.notify(WORK)

    await asyncio.wait_for(asyncio.gather(*waiting), 30)
    assert wakeups.generation(WORK) > seen


async def test_a_hint_that_came_while_looking_is_not_missed(scene: Scene) -> None:
    wakeups = scene.stores.wakeups
    seen = wakeups.generation(WORK)
    wakeups.notify(WORK)

    await asyncio.wait_for(wakeups.wait(WORK, seen, 60), 30)
    assert wakeups.generation(WORK) > seen


async def test_a_wait_ends_by_itself(scene: Scene) -> None:
    wakeups = scene.stores.wakeups
    ended, _ = await asyncio.wait([asyncio.create_task(wakeups.wait(DONE, wakeups.generation(DONE), 0.01))], timeout=30)

    assert len(ended) == 1


async def test_who_follows_a_topic_is_called_back_until_he_has_enough(scene: Scene) -> None:
    wakeups, called, rung = scene.stores.wakeups, asyncio.Event(), []

    def call() -> None:
        rung.append(WORK)
        called.set()

    unfollow = wakeups.follow(WORK, call)
    attending = asyncio.create_task(wakeups.listen())
    wakeups.notify(WORK)
    assert rung  # on the own loop there is nothing to wait for
    called.clear()
    await asyncio.to_thread(wakeups.notify, WORK)
    await asyncio.wait_for(called.wait(), 60)

    unfollow()
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    rung.clear()
    wakeups.notify(WORK)

    assert rung == []


async def test_every_ring_of_the_last_second_is_counted_while_a_subscription_works(scene: Scene) -> None:
    """Who has read rules since then need not read them again."""
    wakeups = scene.stores.wakeups
    await subscribed(scene.stores)
    seen = wakeups.generation(RULES)

    await asyncio.to_thread(wakeups.notify, RULES)

    assert wakeups.generation(RULES) > seen
    assert await asyncio.to_thread(wakeups.lag_s, RULES) < 60  # any thread may ask
