"""Dead letters over a server."""

from tests.cli.conftest import Answer, work
from tests.cli.remote.conftest import Shop


def lost(served: Shop, count: int) -> list[str]:
    ids = [served.local("enqueue", "send", f"address=nowhere {number}").out.strip() for number in range(count)]
    work()
    return ids


def test_groups_are_listed_and_looked_into_the_same(served: Shop) -> None:
    ids = lost(served, 3)

    [group] = served.same("dlq", "--json").json["items"]
    assert (group["count"], group["name"], set(group["newest"])) == (3, "send", set(ids))
    assert served.same("dlq", "list", "--name", "pack").err == "No dead letters.\n"
    shown = served.same("dlq", "show", group["fingerprint"], "--limit", "2", "--json").json["items"]
    assert [task["id"] for task in shown] == [ids[2], ids[1]]
    assert served.same("dlq", "show", "feed").code == 3


def test_a_group_is_replayed_and_another_discarded(served: Shop) -> None:
    ids = lost(served, 3)
    fingerprint = served.local("dlq", "--json").json["items"][0]["fingerprint"]

    asked = served.same("dlq", "replay", "--fingerprint", fingerprint)
    assert (asked.code, "3 dead letters would be replayed." in asked.err) == (2, True)
    some = served.remote("dlq", "replay", "--fingerprint", fingerprint, "--limit", "1", "--yes", "--json")
    assert some.json == {"changed": [ids[0]], "is_more": False}
    work()
    assert served.remote("dlq", "replay", "--name", "send", "--yes").out == "Replayed 3 dead letters.\n"
    work()
    one = served.remote("dlq", "discard", ids[0], "--reason", "moved away")
    assert one == Answer(0, f"{ids[0]}  discarded  send\n", "")
    rest = served.remote("dlq", "discard", "--all", "--reason", "the shop is closed", "--yes")
    assert rest.out == "Discarded 2 dead letters.\n"
    for command in (("replay", "--all"), ("discard", "--all", "--reason", "none")):
        assert served.same("dlq", *command, "--yes") == Answer(0, "", "No dead letter matches.\n")
    assert served.same("dlq", "replay", "--fingerprint", fingerprint, "--yes").code == 3
    assert served.local("show", ids[1], "--json").json["reason"] == "the shop is closed"


def test_one_letter_is_replayed_with_other_arguments(served: Shop) -> None:
    [task_id] = lost(served, 1)

    answer = served.remote("dlq", "replay", task_id, "--args", '{"address": "Station Road"}')
    assert answer == Answer(0, f"{task_id}  pending  send  generation 2\n", "")
    assert served.remote("dlq", "replay", task_id, by="viewer").code == 7
