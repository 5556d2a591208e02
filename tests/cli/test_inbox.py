"""`ade inbox`: what a person sees of the inboxes of conversations, puts in and takes out."""

import pytest

from ade import ItemKind, NewItem
from tests.cli.conftest import Call, with_stores
from tests.domain import DurableInbox, InboxLimits, ReturnReason, Stores


def take(inbox_id: str) -> None:
    async def taking(stores: Stores) -> None:
        inbox = DurableInbox(stores, inbox_id)
        assert await inbox.take_items(1, lease_id="l1", holder="pump of here", lease_ms=60_000)
        await inbox.remember("l1", {"session_id": "s1"})

    with_stores(taking)


@pytest.fixture
def post(shop: Call) -> Call:
    """A conversation with three items, of which one is taken, and one without any."""
    shop("inbox", "send", "conv-1", "hello", "--consumer", "agent:coder", "--agent-id", "a1")
    shop("inbox", "send", "conv-1", "x" * 100, "--conversation-id", "c9")
    shop("inbox", "send", "conv-1", "task done", "--kind", "task_notification", "--source", "subagent")
    shop("inbox", "send", "conv-2", "hi")
    shop("inbox", "clear", "conv-2", "--reason", "cancelled")
    take("conv-1")
    return shop


def test_inboxes_are_listed_with_how_they_stand(post: Call) -> None:
    one, other = post("inbox", "--json").json["items"]

    assert (one["id"], one["waiting"], one["taken"], one["consumer"]) == ("conv-1", 2, 1, "agent:coder")
    assert one["holder"] == "pump of here"
    assert 0 < one["lease_ms"] <= 60_000
    assert (other["id"], other["waiting"]) == ("conv-2", 0)
    assert not {"oldest_at", "lease_ms"} & other.keys()
    assert post("inbox").lines[0].split()[:3] == ["INBOX", "WAITING", "TAKEN"]
    assert post("inbox", "list").lines[1].split()[:3] == ["conv-1", "2", "1"]


def test_a_long_list_comes_in_pages(post: Call) -> None:
    first = post("inbox", "list", "--limit", "1", "--json").json
    rest = post("inbox", "list", "--after", first["items"][-1]["id"], "--json").json

    assert [one["id"] for one in (*first["items"], *rest["items"])] == ["conv-1", "conv-2"]
    assert ("next" in first, "next" in rest) == (True, False)


def test_an_inbox_is_shown_with_its_items_in_order(post: Call) -> None:
    shown = post("inbox", "show", "conv-1", "--json").json

    assert [(item["id"], item["is_taken"], item["kind"], item["source"]) for item in shown["items"]] == [
        ("q-1", True, "message", "user"),
        ("q-2", False, "message", "user"),
        ("q-3", False, "task_notification", "subagent"),
    ]
    assert [item.get("agent_id") for item in shown["items"]] == ["a1", None, None]
    assert (shown["items"][0]["content"], shown["items"][2]["text"]) == ("hello", "task done")
    assert shown["items"][1]["conversation_id"] == "c9"
    assert (shown["batch"]["batch_id"], shown["batch"]["holder"]) == ("batch-1", "pump of here")
    assert shown["memory"] == {"session_id": "s1"}

    lines = post("inbox", "show", "conv-1").lines
    assert lines[0].startswith("batch-1 is out: pump of here")
    assert "x" * 59 + "…" in lines[-2]
    assert post("inbox", "show", "conv-2").err == "Nothing waits in it.\n"


def test_an_item_is_removed_and_the_rest_cleared(post: Call) -> None:
    assert post("inbox", "remove", "conv-1", "q-2", "--json").json == {"inbox": "conv-1", "removed": "q-2"}
    again, taken = (post("inbox", "remove", "conv-1", item, "--json") for item in ("q-2", "q-1"))
    assert (again.code, again.error["code"]) == (taken.code, taken.error["code"]) == (3, "unknown_inbox_item")
    assert post("inbox", "clear", "conv-1", "--reason", "error", "--json").json["cleared"] == ["q-3"]
    assert post("inbox", "clear", "conv-1", "--reason", "error").out == "conv-1: 0 items removed\n"
    assert [item["id"] for item in post("inbox", "show", "conv-1", "--json").json["items"]] == ["q-1"]


def test_what_is_sent_under_a_key_is_put_in_once(shop: Call) -> None:
    first = shop("inbox", "send", "c", "done", "--key", "t1", "--json").json
    second = shop("inbox", "send", "c", "done", "--key", "t1", "--json").json

    assert first["items"] == [{"is_new": True, "item_id": "q-1", "key": "t1"}]
    assert second["items"] == [{"is_new": False, "key": "t1"}]
    assert shop("inbox", "send", "c", "done", "--key", "t1").out == "c: t1 was put in before\n"
    assert shop("inbox", "send", "c", "again").out == "c: q-2 added\n"


def test_what_cannot_be_is_refused_with_a_word_on_why(shop: Call) -> None:
    def refused(*arguments: str) -> tuple[int, str]:
        answer = shop("inbox", *arguments, "--json")
        return answer.code, answer.error["code"]

    assert refused("send", "two words", "hi") == (2, "invalid_inbox")
    assert refused("send", "c", "x" * 256_000) == refused("send", "c", " \n") == (2, "invalid_inbox_item")
    assert refused("show", "c") == refused("clear", "c", "--reason", "error") == (3, "unknown_inbox")
    assert shop("inbox", "clear", "c").code == 2, "a reason is needed"
    assert "No conversation has an inbox yet" in shop("inbox").err
    assert shop("inbox", "list", "--after", "zzz").err == "No inbox comes after zzz.\n"


def test_whoever_sends_is_kept_with_the_item(shop: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADE_USER", "Anna")
    shop("inbox", "send", "c", "one")
    shop("inbox", "send", "c", "two", "--as", "bert")

    assert [item["author"] for item in shop("inbox", "show", "c", "--json").json["items"]] == ["anna", "bert"]


def test_a_consumer_that_nobody_feeds_is_named(shop: Call) -> None:
    meant = shop("inbox", "send", "c", "hi", "--consumer", "coder")

    assert meant.code == 0
    assert "No running worker consumes for coder" in meant.err
    assert "agent:coder" in meant.err
    assert shop("inbox", "send", "c", "hi").err == ""


def test_a_conversation_begins_anew_on_demand(post: Call) -> None:
    busy = post("inbox", "reset", "conv-1", "--json")
    assert (busy.code, busy.error["code"]) == (4, "inbox_busy")

    with_stores(lambda stores: DurableInbox(stores, "conv-1").give_back("l1", ReturnReason.RELEASED))
    assert post("inbox", "show", "conv-1", "--json").json["memory"] == {"session_id": "s1"}
    assert post("inbox", "reset", "conv-1").out == "conv-1: the next turn starts from scratch\n"
    assert post("inbox", "show", "conv-1", "--json").json["memory"] == {}


def test_a_full_inbox_says_so(shop: Call) -> None:
    async def fill(stores: Stores) -> None:
        for _ in range(300):
            await DurableInbox(stores, "c").enqueue(NewItem(kind=ItemKind.APPROVAL_RESULT, text="yes"))

    with_stores(fill)
    answer = shop("inbox", "send", "c", "more", "--json")

    assert (answer.code, answer.error["code"]) == (5, "inbox_full")


def test_who_pushes_out_an_older_item_is_told(shop: Call) -> None:
    async def limit(stores: Stores) -> None:
        inbox = DurableInbox(stores, "c", limits=InboxLimits(max_items=1, hard_max_items=3))
        await inbox.enqueue(NewItem(kind=ItemKind.MESSAGE, content="old"))

    with_stores(limit)

    assert "q-1 dropped" in shop("inbox", "send", "c", "new").err
    assert shop("inbox", "send", "c", "newer", "--json").json["dropped"] == ["q-2"]
