"""One message to one channel: retries, quiet hours in between, channels that are gone, and the log of it all."""

import pytest
from msgspec import structs

from ade import Retry
from ade.webhooks.service import HEALTH
from tests.domain import DeliveryResponse, UserChanges, admit, change_user
from tests.notifications.conftest import Office, Receiver
from tests.notifications.domain import (
    ATTEMPTS,
    DELIVERY_RETENTION_MS,
    PREFERENCES,
    ChannelKind,
    DeliveryState,
    DeliveryStep,
    PreferenceChanges,
    SendOrder,
    change_preferences,
    get_preferences,
    is_quiet,
    list_deliveries,
    remove_channel,
    send_task,
    send_test,
    settle,
)

BROKEN = DeliveryResponse(status=500, excerpt=b"no luck")
HOOK = "https://hooks.example.org/services/T000/B000/s3cret-s3cret-s3cret"


async def test_a_message_is_retried_with_growing_delays_until_it_arrives(office: Office) -> None:
    await office.channels("rita")
    office.receiver = Receiver(BROKEN, DeliveryResponse(error="no connection"), DeliveryResponse(status=250))
    await office.pay()
    await office.collect()
    task = (await office.tasks())[-1]

    steps = []
    for _ in range(3):
        decision = await office.deliver(task)
        steps.append((decision.step, decision.delay_ms))
        office.clock.advance(decision.delay_ms / 1000)
    assert steps == [(DeliveryStep.RETRY, 5_000), (DeliveryStep.RETRY, 300_000), (DeliveryStep.DELIVERED, 0)]
    [delivery] = await list_deliveries(office.stores, "rita", limit=1)
    assert (delivery.state, [each.number for each in delivery.attempts]) == (DeliveryState.DELIVERED, [1, 2, 3])
    assert [each.status for each in delivery.attempts] == [500, None, 250]
    assert "Approval needed: pay" in delivery.body

    await office.deliver(task)
    assert len(office.receiver.messages) == 3, "a delivered message was sent again"
    office.clock.advance(DELIVERY_RETENTION_MS / 1000)
    assert await list_deliveries(office.stores, "rita") == []


async def test_after_the_last_attempt_it_fails(office: Office) -> None:
    await office.rules({"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}], "expires_after": "30d"})
    await office.channels("rita")
    office.receiver = Receiver(BROKEN)
    await office.pay()
    await office.collect()
    task = (await office.tasks())[-1]

    steps = [(await office.deliver(task)).step for _ in range(ATTEMPTS)]
    assert steps == [DeliveryStep.RETRY] * (ATTEMPTS - 1) + [DeliveryStep.GIVE_UP]
    [delivery] = await list_deliveries(office.stores, "rita", state=DeliveryState.FAILED)
    assert len(delivery.attempts) == ATTEMPTS


async def test_an_attempt_in_quiet_hours_waits_for_their_end_and_does_not_count(office: Office) -> None:
    await office.channels("rita")
    changes = PreferenceChanges(time_zone="Europe/Berlin", quiet_hours="22:00-07:00")
    preferences = await office.prefer("rita", changes)
    while is_quiet(preferences, office.clock.now()):
        office.clock.advance(60)
    await office.pay()
    await office.collect()
    task = (await office.tasks())[-1]
    while not is_quiet(preferences, office.clock.now()):  # the worker was busy until the evening
        office.clock.advance(60)
    decision = await office.deliver(task)

    assert (decision.step, office.receiver.messages) == (DeliveryStep.RETRY, [])
    office.clock.advance(decision.delay_ms / 1000)
    assert not is_quiet(preferences, office.clock.now())
    assert (await office.deliver(task)).step is DeliveryStep.DELIVERED
    [delivery] = await list_deliveries(office.stores, "rita", limit=1)
    assert len(delivery.attempts) == 1


async def test_an_urgent_request_breaks_through_quiet_hours(office: Office) -> None:
    await office.channels("rita", "rob")
    for name, setting in (("rita", "critical"), ("rob", "never")):
        changes = PreferenceChanges(quiet_hours="00:00-23:59", break_through=setting)  # type: ignore[arg-type]
        await office.prefer(name, changes)
    await office.pay(priority=1)
    await office.run()

    assert office.recipients() == ["rita"]


async def test_a_digest_collects_what_comes_until_it_is_sent(office: Office) -> None:
    await office.channels("rita")
    await office.prefer("rita", PreferenceChanges(digest_every_s=3_600))
    tasks = []
    for _ in range(3):
        tasks.append(await office.pay())
        office.clock.advance(60)
    await office.run()
    assert office.receiver.messages == []
    await office.vote(tasks[1], "rob")
    office.clock.advance(3_600)
    await office.run()

    [text] = office.told("rita")
    assert "3 notifications" not in text
    for task, is_open in zip(tasks, (True, False, True), strict=True):
        assert (task.id in text) is is_open, "a request that was decided meanwhile is left out"


async def test_a_channel_that_is_gone_is_disabled_and_reported_by_an_event(office: Office) -> None:
    await office.channels("rita")
    await office.channel("rita", ChannelKind.SLACK, HOOK)
    await office.run()
    office.receiver = Receiver(DeliveryResponse(status=410))
    await office.pay()
    await office.run()

    preferences = await get_preferences(office.stores, "rita")
    assert preferences.active == []
    assert "410" in (preferences.channels[0].disabled_why or "")
    events = [event for event in await office.stores.events.read(0, 1_000) if event.type.endswith("channel_disabled")]
    assert len(events) == 2


async def test_a_removed_channel_receives_changes_of_the_account_for_a_week_and_nothing_else(office: Office) -> None:
    await office.channels("rita", "rob")
    await office.pay()
    await office.collect()
    [channel] = (await get_preferences(office.stores, "rita")).channels
    await remove_channel(office.stores, channel.id, account="rita", actor="rita")
    await office.pay()
    await office.run()

    [text] = office.told("rita")
    assert "A notification channel was removed from your account" in text
    assert [each for each in office.recipients() if each == "rob"] == ["rob", "rob"]
    office.receiver.messages.clear()
    for day in range(8):
        roles = frozenset({"reviewer", f"day-{day}"})
        await change_user(office.stores, "rita", UserChanges(roles=roles), actor="root")
        await office.run()
        office.clock.advance(86_400)
    assert len(office.told("rita")) == 7
    await office.run()
    stored = await get_preferences(office.stores, "rita")
    assert (stored.removed, await HEALTH.get(office.stores, channel.id)) == ((), None), "its URL is forgotten, too"


async def test_a_channel_that_is_added_again_is_the_same_one(office: Office) -> None:
    await office.channels("rita")
    [channel] = (await get_preferences(office.stores, "rita")).channels
    await remove_channel(office.stores, channel.id, account="rita", actor="rita")
    await office.collect()
    again = await office.channel("rita")
    await office.run()

    assert again.id == channel.id
    assert sorted(text.splitlines()[0] for text in office.told("rita")) == [
        "A notification channel was added to your account",
        "A notification channel was removed from your account",
    ]


async def test_every_channel_is_independent_of_the_others(office: Office) -> None:
    await office.channels("rita")
    await office.channel("rita", ChannelKind.SLACK, HOOK)
    await office.run()
    office.receiver = Receiver(RuntimeError("a bug"), DeliveryResponse(status=200))
    await office.pay()
    await office.run()

    states = [each.state for each in await list_deliveries(office.stores, "rita", limit=2)]
    assert sorted(states) == [DeliveryState.DELIVERED, DeliveryState.WAITING]


async def test_a_receiver_that_echoes_its_url_does_not_get_it_into_the_log(office: Office) -> None:
    await office.channel("rita", ChannelKind.SLACK, HOOK)
    office.receiver = Receiver(DeliveryResponse(status=404, excerpt=f"no hook at {HOOK}".encode()))
    await office.pay()
    await office.run()

    log = repr(await list_deliveries(office.stores, "rita"))
    assert "no hook at" in log
    assert "s3cret" not in log
    assert "s3cret" not in repr(await get_preferences(office.stores, "rita"))
    assert "s3cret" not in repr(await office.stores.events.read(0, 1_000))
    assert "s3cret" not in repr(await office.tasks())


async def test_a_test_message_is_sent_once_whatever_the_hour_and_its_failure_is_no_dead_letter(office: Office) -> None:
    await office.channels("rita")
    changes = PreferenceChanges(quiet_hours="00:00-23:59")
    await change_preferences(office.stores, "rita", changes, actor="rita")
    office.receiver = Receiver(BROKEN)
    [(delivery, task)] = await send_test(office.stores, office.payloads, "rita", channel_id=None, actor="rita")
    decision = await office.deliver(task)

    assert "Test notification from ADE" in office.told("rita")[0]
    assert settle(decision) == "drop: it answered 500"
    [logged] = await list_deliveries(office.stores, "rita", limit=1)
    assert (logged.id, logged.state, logged.why) == (delivery.id, DeliveryState.FAILED, "it answered 500")
    assert task.max_attempts == 1


async def test_only_ade_can_enqueue_a_delivery(office: Office) -> None:
    task = send_task("rita", SendOrder("msg_1", "ch_1", 0))
    assert admit(task, now=0).source == "system"
    decision = await office.deliver(task)
    assert (decision.step, office.receiver.messages) == (DeliveryStep.DROP, [])


async def test_a_postponed_attempt_is_retried_by_the_queue(office: Office) -> None:
    await office.channels("rita")
    office.receiver = Receiver(BROKEN)
    await office.pay()
    await office.collect()
    decision = await office.deliver((await office.tasks())[-1])
    with pytest.raises(Retry) as retry:
        settle(decision)
    assert retry.value.after == 5.0


async def test_old_preferences_without_the_newer_fields_are_readable(office: Office) -> None:
    await office.channels("rita")
    stored = await PREFERENCES.get(office.stores, "rita")
    assert stored is not None
    bare = structs.replace(stored.record, since=0, updated_at=0)
    assert b"quiet_from" not in bytes(PREFERENCES.put("rita", bare, seen=1).body or b"")
