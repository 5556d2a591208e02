"""`ade notify`: channels, quiet hours, digests, tests, and the log."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call, with_stores
from tests.domain import Stores, User, add_user
from tests.notifications.conftest import Receiver
from tests.notifications.domain import deliver, list_deliveries

HOOK = "https://hooks.example.org/services/s3cret-s3cret-s3cret"


@pytest.fixture
def notified(shop: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Rita acts, and root is an admin; on a local store everyone may do everything."""
    monkeypatch.setenv("ADE_USER", "rita")

    async def people(stores: Stores) -> None:
        await add_user(stores, User(id="root", roles=frozenset({"admin"})))
        await add_user(stores, User(id="rita", roles=frozenset({"reviewer"})))

    assert shop("enqueue", "pack", "item=x").code == 0  # the store exists
    with_stores(people)
    return shop


def test_a_channel_is_added_listed_and_removed(notified: Call) -> None:
    added = notified("notify", "channels", "add", "email", "rita@example.org", "--label", "work")
    channel = added.lines[0].partition(":")[0]
    assert added.lines[0] == f"{channel}: email to rita@example.org"
    assert f"ade notify test {channel}" in added.err
    [listed] = notified("notify", "channels", "--json").json["items"]
    assert (listed["id"], listed["label"], listed["account"]) == (channel, "work", "rita")
    assert "rita@example.org" in notified("notify", "channels").out

    assert notified("notify", "channels", "remove", channel, "--yes").lines == [f"{channel}: removed"]
    assert notified("notify", "channels", "remove", channel, "--yes").code == 3
    assert "ade notify channels add" in notified("notify", "channels").err


def test_a_url_is_read_from_stdin_and_never_shown(notified: Call) -> None:
    added = notified("notify", "channels", "add", "slack", stdin=f"{HOOK}\n")
    assert added.lines[0].endswith("slack to https://hooks.example.org")
    shown = "".join(
        notified(*words).out
        for words in (
            ["notify", "channels"],
            ["notify", "channels", "--json"],
            ["notify", "log", "--json"],
            ["events", "tail", "--after", "0", "--json"],
        )
    )
    assert "s3cret" not in shown + added.out


def test_a_channel_for_a_program_shows_its_secret_once(notified: Call) -> None:
    added = notified("notify", "channels", "add", "webhook", "https://example.org/in")
    assert added.lines[1].startswith("whsec_")
    assert added.lines[1] not in notified("notify", "channels", "--json").out


def test_invalid_input_says_what_to_do(notified: Call) -> None:
    wrong = notified("notify", "channels", "add", "email", "Rita <rita@example.org>")
    assert (wrong.code, "write it like name@example.org" in wrong.err) == (2, True)
    assert notified("notify", "channels", "add", "pigeon", "x").code == 2
    assert notified("notify", "preferences", "--quiet-hours", "late").code == 2
    assert notified("notify", "preferences", "--digest", "noon").code == 2
    assert notified("notify", "channels", "list", "--user", "root").code == 0
    assert notified("notify", "channels", "add", "email", "x@example.org", "--user", "nobody").code == 3


def test_preferences_are_shown_and_changed(notified: Call) -> None:
    changed = notified(
        *("notify", "preferences", "--quiet-hours", "22:00-07:00", "--time-zone", "Europe/Berlin"),
        *("--digest", "4h", "--break-through", "high"),
    )
    for text in ("22:00-07:00", "Europe/Berlin", "every 14400 s", "high"):
        assert text in changed.out
    assert notified("notify", "--json").json["digest_every_s"] == 14_400
    assert notified("notify", "preferences", "--digest", "09:00,16:00", "--json").json["digest_at"] == [
        "09:00",
        "16:00",
    ]
    assert notified("notify", "preferences", "--digest", "off", "--quiet-hours", "none").out.count("none") == 1


def test_without_a_worker_a_test_reports_that_nothing_was_sent_yet(notified: Call) -> None:
    notified("notify", "channels", "add", "email", "rita@example.org")
    tested = notified("notify", "test", "--timeout", "10ms")
    assert (tested.code, "Is a worker running?" in tested.err) == (124, True)
    assert "waiting" in tested.out
    assert notified("notify", "test", "root").code == 2


def test_the_log_shows_messages_and_their_attempts(notified: Call, tmp_path: Path) -> None:
    notified("notify", "channels", "add", "email", "rita@example.org")
    notified("notify", "test", "--timeout", "10ms")

    async def send(stores: Stores) -> str:
        [delivery] = await list_deliveries(stores, "rita")
        await deliver(stores, Receiver(), "rita", delivery.id, randomness=0.5)
        return delivery.id

    delivery = with_stores(send)
    assert "delivered" in notified("notify", "log").out
    shown = notified("notify", "log", delivery).out
    for text in ("Test notification from ADE", "it answered 200", "email"):
        assert text in shown
    assert notified("notify", "log", "msg_0").code == 3
    assert notified("notify", "log", "--state", "failed", "--json").json["items"] == []
