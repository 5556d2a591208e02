"""Webhooks are made, changed, given other secrets, silenced and removed; each is told, and nobody is overwritten."""

import pytest

from ade.errors import InvalidWebhook, StaleWrite, UnknownWebhook
from ade.testing import TestClock
from ade.webhooks.deliveries import WebhookHealth
from ade.webhooks.model import MOST_WEBHOOKS, Webhook
from ade.webhooks.service import (
    HEALTH,
    WebhookChanges,
    change,
    create,
    disable,
    enable,
    find,
    list_webhooks,
    remove,
    rotate,
)
from ade.webhooks.signatures import SECRET_PREFIX, key_of, secret_of
from tests.domain import NetworkPolicy, Stores, networks_of
from tests.stores.interleaved_writes import meanwhile
from tests.webhooks.conftest import URL, told


async def test_a_webhook_is_made_with_a_secret_and_told_without_it(stores: Stores) -> None:
    made = await create(stores, URL, ["task.*", "alert", "task.*"], actor="root", description="for the team")

    assert await list_webhooks(stores) == [made]
    assert (made.events, made.created_by, made.is_active) == (("task.*", "alert"), "root", True)
    assert len(key_of(made.secrets[0].value)) == 32
    [event] = await stores.events.read(0, 10)
    assert (event.type, event.actor) == ("webhook.created", "root")
    assert event.payload == {
        "webhook": made.id,
        "origin": "https://hooks.example.org",
        "events": ["task.*", "alert"],
    }


async def test_what_cannot_be_is_not_stored(stores: Stores) -> None:
    for url, events, secret in (
        ("https://127.0.0.1/", ["*"], None),
        ("http://example.org/", ["*"], None),
        (URL, [], None),
        (URL, ["no such pattern"], None),
        (URL, ["*"], "whsec_short"),
    ):
        with pytest.raises(InvalidWebhook):
            await create(stores, url, events, actor="root", secret=secret)

    assert await list_webhooks(stores) == []
    assert await told(stores) == []
    at_home = NetworkPolicy(allow_http=True, allowed=networks_of(["127.0.0.0/8"]))
    await create(stores, "http://127.0.0.1:8080/", ["*"], actor="root", reach=at_home)


async def test_there_are_only_so_many(stores: Stores) -> None:
    for _ in range(MOST_WEBHOOKS):
        await create(stores, URL, ["*"], actor="root")

    with pytest.raises(InvalidWebhook, match="remove one first"):
        await create(stores, URL, ["*"], actor="root")


async def test_it_is_changed_and_the_log_says_in_what(stores: Stores, webhook: Webhook) -> None:
    after = await change(stores, webhook.id, WebhookChanges(url="https://b.example/x", events=("*",)), actor="ada")
    same = await change(stores, webhook.id, WebhookChanges(url="https://b.example/x"), actor="ada")

    assert same == after == (await find(stores, webhook.id)).record
    assert after.secrets == webhook.secrets
    event = (await stores.events.read(0, 10))[-1]
    assert event.payload == {
        "webhook": webhook.id,
        "fields": ["url", "events"],
        "origin": "https://b.example",
        "events": ["*"],
    }
    assert await told(stores) == ["webhook.created", "webhook.changed"]
    with pytest.raises(InvalidWebhook):
        await change(stores, webhook.id, WebhookChanges(url="https://10.0.0.1/"), actor="ada")


async def test_two_change_it_at_once_and_neither_is_lost(stores: Stores, webhook: Webhook) -> None:
    async def other() -> None:
        await change(stores, webhook.id, WebhookChanges(description="other"), actor="bob")

    after = await change(meanwhile(stores, other), webhook.id, WebhookChanges(events=("*",)), actor="ada")

    assert (after.description, after.events) == ("other", ("*",))


async def test_who_names_the_version_he_saw_is_told_when_it_is_old(stores: Stores, webhook: Webhook) -> None:
    seen = (await find(stores, webhook.id)).version

    await change(stores, webhook.id, WebhookChanges(description="new"), actor="ada", seen=seen)

    with pytest.raises(StaleWrite):
        await change(stores, webhook.id, WebhookChanges(description="newer"), actor="bob", seen=seen)


async def test_its_secret_is_replaced_with_an_overlap(stores: Stores, webhook: Webhook, clock: TestClock) -> None:
    own = secret_of(b"brought along from elsewhere, 32")
    after = await rotate(stores, webhook.id, actor="root", secret=own, overlap_ms=60_000)

    assert after.signing_secrets(clock.now()) == [own, webhook.secrets[0].value]
    clock.advance(60)
    assert after.signing_secrets(clock.now()) == [own]
    assert len({secret.value for secret in (await rotate(stores, webhook.id, actor="root")).secrets}) == 2
    event = (await stores.events.read(0, 10))[1]
    assert (event.type, event.payload["ends_at"]) == ("webhook.secret_rotated", clock.now())


async def test_no_secret_and_no_path_is_ever_in_the_log(stores: Stores, webhook: Webhook) -> None:
    await rotate(stores, webhook.id, actor="root")
    await change(stores, webhook.id, WebhookChanges(url=f"{URL}/more"), actor="root")
    await disable(stores, webhook.id, "enough", actor="root")
    await enable(stores, webhook.id, actor="root")
    await remove(stores, webhook.id, actor="root")

    everything = repr(await stores.events.read(0, 100))
    assert SECRET_PREFIX not in everything
    assert "s3cret" not in everything


async def test_it_is_silenced_and_woken_once(stores: Stores, webhook: Webhook, clock: TestClock) -> None:
    await stores.documents.write([HEALTH.put(webhook.id, WebhookHealth(failing_since=1, failures=99), seen=0)])
    await disable(stores, webhook.id, "too loud", actor="root")
    silent = await disable(stores, webhook.id, "again", actor="root")

    assert (silent.is_active, silent.disabled_why, silent.disabled_at) == (False, "too loud", clock.now())
    await enable(stores, webhook.id, actor="root")
    awake = await enable(stores, webhook.id, actor="root")
    _, before, *_ = await stores.events.read(0, 10)
    assert (awake.is_active, awake.disabled_why, awake.since) == (True, None, before.seq)
    assert await HEALTH.get(stores, webhook.id) is None
    assert await told(stores) == ["webhook.created", "webhook.disabled", "webhook.enabled"]


async def test_what_may_not_be_reached_any_more_is_not_woken(stores: Stores, webhook: Webhook) -> None:
    await disable(stores, webhook.id, "too loud", actor="root")

    await change(stores, webhook.id, WebhookChanges(url="https://8.8.8.8/"), actor="root")
    with pytest.raises(InvalidWebhook, match="settings"):
        await enable(stores, webhook.id, actor="root", reach=NetworkPolicy(refused=networks_of(["8.8.8.0/24"])))


async def test_it_is_removed_once_even_if_somebody_changes_it_meanwhile(stores: Stores, webhook: Webhook) -> None:
    async def other() -> None:
        await change(stores, webhook.id, WebhookChanges(description="other"), actor="bob")

    await remove(meanwhile(stores, other), webhook.id, actor="root")

    assert await list_webhooks(stores) == []
    for step in (remove, enable, rotate):
        with pytest.raises(UnknownWebhook):
            await step(stores, webhook.id, actor="root")
    with pytest.raises(UnknownWebhook):
        await disable(stores, "nonsense", "", actor="root")
