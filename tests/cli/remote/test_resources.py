"""Queues, schedules, agents, conversations and figures over a server: seen and changed as beside the store."""

from typing import Any

from tests.cli.conftest import work
from tests.cli.remote.conftest import Shop
from tests.domain import Role

_MOVING = ("at", "throughput", "heartbeats", "progress_at")


def still(value: Any) -> Any:
    """A document without the figures that go on from one look to the next."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name not in _MOVING and not name.endswith("_ms")}
        return {name: still(each) for name, each in kept.items()}
    return [still(each) for each in value] if isinstance(value, list) else value


def same(shop: Shop, *arguments: str) -> Any:
    """What both ways show as JSON."""
    local, remote = shop.local(*arguments, "--json"), shop.remote(*arguments, "--json")
    assert (remote.code, remote.err) == (local.code, local.err) == (0, "")
    shown = still(remote.json)
    assert shown == still(local.json)
    return shown


def test_queues_are_listed_paused_limited_and_resumed(served: Shop) -> None:
    served.local("enqueue", "wobble", "--delay", "1h")

    assert served.remote("queues", "pause", "slow").out == "slow: paused, no limit\n"
    assert served.remote("queues", "limit", "mail", "7", "--new").out == "mail: open, at most 7 unfinished tasks\n"
    served.same("queues", "list")
    served.same("queues", "--json")
    assert served.remote("queues", "resume", "slow", "--json").json["paused"] is False
    assert served.remote("queues", "limit", "mail", "none").out == "mail: open, no limit\n"
    served.same("queues", "pause", "solw", "--json")
    told = served.same("events", "tail", "--type", "queue.*", "--after", "0", "--json").json_lines
    assert {event["actor"] for event in told} == {"the-admin"}


def test_a_schedule_is_made_fired_paused_and_removed(served: Shop) -> None:
    work()
    added = served.remote("schedules", "add", "lamps", "30 9 * * 1-5", "pack", "--args", '{"item": "lamp"}')

    assert added.out.startswith("lamps: enqueues pack next at ")
    listed = same(served, "schedules")["items"]
    assert [(each["name"], each["task_name"]) for each in listed] == [("lamps", "pack"), ("tidy", "tidy")]
    task_id = served.remote("schedules", "fire", "lamps").out.strip()
    assert served.local("show", task_id, "--json").json["author_id"] == "the-admin"
    assert served.remote("schedules", "pause", "lamps").out == "lamps: paused\n"
    assert served.remote("schedules", "resume", "lamps").out.startswith("lamps: enqueues pack next at ")
    assert served.remote("schedules", "remove", "lamps").out == "lamps: removed\n"
    served.same("schedules", "pause", "lamps", "--json")
    for wrong in (["x", "every day", "pack"], ["x", "* * * * *", "pakc"], ["x", "* * * * *", "pack"]):
        local, remote = (ade("schedules", "add", *wrong, "--json") for ade in (served.local, served.remote))
        assert (remote.code, remote.error["code"]) == (local.code, local.error["code"])


def test_who_acts_is_known_by_the_token_alone(served: Shop) -> None:
    answer = served.remote("schedules", "pause", "tidy", "--as", "somebody", "--json")

    assert (answer.code, answer.error["code"]) == (2, "needs_store")
    assert "--as" in answer.error["message"]
    denied = served.remote("queues", "pause", "mail", "--new", "--json", by=Role.VIEWER)
    assert (denied.code, denied.error["code"]) == (7, "not_permitted")


def test_workers_and_figures_are_the_same(served: Shop) -> None:
    work()
    served.local("enqueue", "send", "address=nowhere")
    work()

    assert "test-worker" in {worker["worker"]["id"] for worker in same(served, "workers")["items"]}
    assert same(served, "stats")["dead_letters"] == 1
    assert served.remote("stats").lines[0] == served.local("stats").lines[0]
    assert same(served, "top", "--once")["running"] == []
    assert "dead letters" in served.remote("top", "--once").out


def test_agents_are_registered_drained_and_forgotten(served: Shop) -> None:
    made = served.remote("agents", "register", "coder", "--max-tasks", "3", "--type", "writer", "--capability", "gpu")

    assert made.out == "coder (writer): active, at most 3 tasks at once, can gpu\n"
    assert [agent["id"] for agent in same(served, "agents")["items"]] == ["coder"]
    same(served, "agents", "show", "coder")
    for verb, status in (("drain", "draining"), ("offline", "offline"), ("activate", "active")):
        assert served.remote("agents", verb, "coder", "--json").json["status"] == status
    served.same("agents", "show", "codr")
    assert served.remote("agents", "remove", "coder").out == "coder: removed\n"
    served.same("agents")


def test_agents_at_work_are_listed_and_shown(served: Shop) -> None:
    task_id = served.local("enqueue", "agent:coder", "--args", '{"prompt": "write"}', "--allow-unknown").out.strip()

    [seen] = same(served, "subagents")["items"]
    assert (seen["id"], seen["type"], seen["status"]) == (task_id, "Coder", "pending")
    same(served, "subagents", "--status", "pending", "--limit", "1")
    served.same("subagents", "--status", "error")
    served.same("subagents", task_id[-8:])
    served.same("subagents", "no-such-task")


def test_a_conversation_is_told_something_and_emptied(served: Shop) -> None:
    said = served.remote("inbox", "send", "conv-1", "hello", "--consumer", "agent:coder", "--key", "k1")

    assert said.out.startswith("conv-1: ")
    assert said.err == served.local("inbox", "send", "conv-2", "hello", "--consumer", "agent:coder").err
    assert served.remote("inbox", "send", "conv-1", "hello", "--key", "k1").out == "conv-1: k1 was put in before\n"
    assert [one["id"] for one in same(served, "inbox")["items"]] == ["conv-1", "conv-2"]
    assert "next" in served.same("inbox", "list", "--limit", "1", "--json").json
    shown = same(served, "inbox", "show", "conv-1")
    assert [(item["content"], item["author"], item["is_taken"]) for item in shown["items"]] == [
        ("hello", "the-admin", False)
    ]
    item = shown["items"][0]["id"]
    assert served.remote("inbox", "remove", "conv-1", item).out == f"conv-1: {item} removed\n"
    served.same("inbox", "remove", "conv-1", item, "--json")
    served.same("inbox", "show", "conv-9", "--json")
    assert served.remote("inbox", "clear", "conv-2", "--reason", "cancelled").out == "conv-2: 1 item removed\n"
    assert served.remote("inbox", "reset", "conv-2").out == "conv-2: the next turn starts from scratch\n"
