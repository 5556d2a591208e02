"""`ade webhooks`: who is told what, and what came of it."""

from pathlib import Path

import pytest

from ade.webhooks.service import list_webhooks
from tests.cli.conftest import Call, with_stores
from tests.domain import DeliveryResponse, DeliveryTaskArguments, Stores, deliver
from tests.webhooks.conftest import Network

URL = "https://hooks.example.org/in/s3cret-path"
OWN = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.fixture
def hooked(shop: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """One webhook is there."""
    monkeypatch.setenv("ADE_USER", "ada")
    assert shop("webhooks", "create", URL, "--event", "task.*", "--event", "queue.paused").code == 0
    return shop


def the_id(ade: Call) -> str:
    [webhook] = ade("webhooks", "--json").json["items"]
    return str(webhook["id"])


def secrets_kept() -> list[str]:
    async def look(stores: Stores) -> list[str]:
        [webhook] = await list_webhooks(stores)
        return [secret.value for secret in webhook.secrets]

    return with_stores(look)


def sent(*answers: DeliveryResponse) -> str:
    """The last event was sent to the webhook, with these answers one after the other. The id of the delivery."""

    async def send(stores: Stores) -> str:
        [webhook] = await list_webhooks(stores)
        order, network = (
            DeliveryTaskArguments(webhook_id=webhook.id, seq=await stores.events.last_seq()),
            Network(*answers),
        )
        for attempt in range(1, len(answers) + 1):
            await deliver(stores, network, order, attempt=attempt, randomness=0.5)
        return network.sent[0].headers["webhook-id"]

    return with_stores(send)


def test_a_new_webhook_tells_its_secret_once(shop: Call) -> None:
    answer = shop("webhooks", "create", URL, "--event", "task.failed", "--description", "the pager", "--as", "Ada")

    about, secret = answer.lines
    assert about.endswith(": active, task.failed to https://hooks.example.org")
    assert secret.startswith("whsec_")
    assert "not shown again" in answer.err
    [shown] = shop("webhooks", "--json").json["items"]
    assert (shown["url"], shown["description"], shown["created_by"]) == (URL, "the pager", "ada")
    for words in (["webhooks", "--json"], ["webhooks"], ["webhooks", "show", shown["id"]]):
        assert secret not in shop(*words).out
    assert "s3cret-path" not in shop("webhooks").out
    assert URL in shop("webhooks", "show", shown["id"]).out
    assert secret not in str(shop("events", "tail", "--after", "0", "--json").json_lines)


def test_without_webhooks_it_says_how_to_make_one(shop: Call) -> None:
    assert "ade webhooks create URL" in shop("webhooks").err


def test_a_secret_of_ones_own_comes_from_stdin_and_is_not_printed(shop: Call) -> None:
    answer = shop("webhooks", "create", URL, "--event", "*", "--secret-stdin", "--json", stdin=f"{OWN}\n")

    assert ("secret" in answer.json, OWN in answer.out, secrets_kept()) == (False, False, [OWN])


@pytest.mark.parametrize(
    ("url", "event", "said"),
    [
        ("http://hooks.example.org/", "*", "begins with https"),
        ("https://127.0.0.1/", "*", "this machine"),
        ("https://[::ffff:169.254.169.254]/", "*", "no webhook may reach"),
        ("https://2130706433/", "*", "not a network address"),
        (URL, "task.", "not an event type"),
    ],
)
def test_what_must_not_be_is_refused_and_nothing_is_stored(shop: Call, url: str, event: str, said: str) -> None:
    answer = shop("webhooks", "create", url, "--event", event, "--json")

    assert (answer.code, answer.error["code"]) == (2, "invalid_webhook")
    assert said in answer.error["message"]
    assert shop("webhooks", "--json").json == {"items": []}


def test_settings_say_what_may_be_reached(shop: Call, folder: Path) -> None:
    (folder / "ade.toml").write_text('[webhooks]\nallow_http = true\nallowed_networks = ["127.0.0.0/8"]\n')

    assert shop("webhooks", "create", "http://127.0.0.1:8000/in", "--event", "*").code == 0
    assert shop("webhooks", "create", "http://10.0.0.1:8000/in", "--event", "*").code == 2


def test_a_webhook_is_changed_disabled_enabled_and_removed(hooked: Call) -> None:
    webhook = the_id(hooked)

    changed = hooked("webhooks", "change", webhook, "--address", "https://other.example.org/", "--event", "*").out
    assert changed == f"{webhook}: active, * to https://other.example.org\n"
    assert hooked("webhooks", "change", webhook).code == 2
    hooked("webhooks", "disable", webhook, "--reason", "the pager is broken")
    assert "the pager is broken" in hooked("webhooks", "show", webhook).out
    assert hooked("webhooks", "test", webhook, "--json").error["code"] == "invalid_webhook"
    assert hooked("webhooks", "enable", webhook, "--json").json["is_active"] is True
    assert (hooked("webhooks", "remove", webhook).code, the_id(hooked)) == (2, webhook)
    assert hooked("webhooks", "remove", webhook, "--yes").out == f"{webhook}: removed\n"

    for words in (["show"], ["change", "--address", URL], ["enable"], ["disable"], ["test"], ["rotate-secret"]):
        verb, *options = words
        answer = hooked("webhooks", verb, webhook, *options, "--json")
        assert (answer.code, answer.error["code"]) == (3, "unknown_webhook"), verb
    told = [event["type"] for event in hooked("events", "tail", "--after", "0", "--json").json_lines]
    assert told == [f"webhook.{what}" for what in ("created", "changed", "disabled", "enabled", "removed")]


def test_a_new_secret_and_the_old_one_sign_together_for_a_while(hooked: Call) -> None:
    webhook = the_id(hooked)

    fresh = hooked("webhooks", "rotate-secret", webhook, "--overlap", "2d").lines[-1]

    kept = secrets_kept()
    assert (kept[0], len(kept)) == (fresh, 2)
    assert "1, sign until" in hooked("webhooks", "show", webhook).out
    hooked("webhooks", "rotate-secret", webhook, "--overlap", "0", "--secret-stdin", stdin=OWN)
    assert secrets_kept() == [OWN]
    assert hooked("webhooks", "rotate-secret", webhook, "--overlap", "8d", "--json").error["code"] == "invalid_webhook"


def test_what_was_sent_is_listed_shown_and_sent_once_more(hooked: Call) -> None:
    webhook = the_id(hooked)
    hooked("webhooks", "test", webhook)
    delivery = sent(
        DeliveryResponse(status=503, excerpt=b"busy \x1b[31m", duration_ms=12), DeliveryResponse(status=204)
    )

    [listed] = hooked("webhooks", "deliveries", webhook, "--json").json["items"]
    assert (listed["id"], listed["type"], listed["state"]) == (delivery, "webhook.tested", "delivered")
    assert [attempt["status"] for attempt in listed["attempts"]] == [503, 204]
    assert delivery in hooked("webhooks", "deliveries", webhook).out
    assert hooked("webhooks", "deliveries", webhook, "--state", "failed", "--json").json == {"items": []}
    shown = hooked("webhooks", "delivery", webhook, delivery)
    assert ("busy" in shown.out, "\x1b" in shown.out, '"type":"webhook.tested"' in shown.out) == (True, False, True)
    assert hooked("webhooks", "delivery", webhook, delivery, "--json").json["body"].startswith("{")
    [fared] = hooked("webhooks", "--json").json["items"]
    assert (fared["health"]["failures"], "succeeded_at" in fared["health"]) == (0, True)

    task = hooked("webhooks", "replay", webhook, delivery, "--json").json["id"]
    assert hooked("show", task, "--json").json["name"] == "webhooks:deliver"
    assert hooked("webhooks", "replay", webhook, "msg_none", "--json").error["code"] == "unknown_webhook"


def test_nobody_can_order_a_message_by_hand(hooked: Call) -> None:
    given = '{"webhook_id": "x", "seq": 1}'

    answer = hooked("enqueue", "webhooks:deliver", "--args", given, "--allow-unknown", "--json")

    assert (answer.code, answer.error["code"]) == (2, "invalid_task")


def test_the_selection_of_tasks_is_changed_and_removed(hooked: Call) -> None:
    webhook = the_id(hooked)
    chosen = ("--name", "pack", "--name", "send", "--queue", "mail", "--tag", "big", "--author", "ada")
    changed = hooked("webhooks", "change", webhook, *chosen, "--json").json
    whole = {"names": ["pack", "send"], "queues": ["mail"], "tags": ["big"], "authors": ["ada"]}
    assert changed["tasks"] == whole
    assert changed["events"] == ["queue.paused", "task.*"] or changed["events"] == ["task.*", "queue.paused"]

    hooked("webhooks", "change", webhook, "--description", "the pager")
    assert hooked("webhooks", "show", webhook, "--json").json["tasks"] == whole  # what is not named stays
    assert "pack, send" in hooked("webhooks", "show", webhook).out
    only = hooked("webhooks", "change", webhook, "--queue", "mail", "--json").json["tasks"]
    assert [name for name, values in only.items() if values] == ["queues"]  # together they are the selection
    hooked("webhooks", "change", webhook, "--all-tasks")
    assert not any(hooked("webhooks", "show", webhook, "--json").json.get("tasks", {}).values())
    both = hooked("webhooks", "change", webhook, "--all-tasks", "--tag", "big")
    assert (both.code, "--all-tasks" in both.err) == (2, True)
