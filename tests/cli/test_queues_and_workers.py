"""`ade queues`, `schedules`, `workers`, `events`, `stats` and `top`: how an operator keeps an eye and a hand on it."""

import pytest

from tests.cli.conftest import Call, work


def test_queues_are_listed_with_their_depth(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    shop("enqueue", "wobble", "--delay", "1h")
    listed = {queue["name"]: queue for queue in shop("queues", "list", "--json").json["items"]}

    assert listed["default"]["by_status"] == {"pending": 1}
    assert listed["default"]["oldest_ready_ms"] >= 0
    assert listed["slow"].get("oldest_ready_ms") is None
    assert shop("queues", "list").lines[0].split()[:3] == ["QUEUE", "STATE", "PENDING"]


def test_a_paused_queue_is_not_worked_on_until_it_is_resumed(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    assert shop("queues", "pause", "default").out == "default: paused, no limit\n"
    work()
    assert shop("show", task_id, "--json").json["status"] == "pending"

    assert shop("queues", "resume", "default").out == "default: open, no limit\n"
    work()
    assert shop("show", task_id, "--json").json["status"] == "completed"


def test_a_queue_that_nobody_knows_is_probably_a_slip(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    answer = shop("queues", "pause", "defualt", "--json")

    assert (answer.code, answer.error["code"]) == (3, "unknown_queue")
    assert "did you mean default?" in answer.error["message"]
    assert shop("queues", "pause", "new-one", "--new").code == 0
    assert shop("queues", "pause", "no good", "--new").code == 2


@pytest.mark.parametrize("depth", ["0", "-1", "many", "1.5"])
def test_a_limit_is_a_number_above_zero_or_none(shop: Call, depth: str) -> None:
    assert shop("queues", "limit", "default", "--new", "--", depth).code == 2
    assert shop("queues", "limit", "default", "7", "--new", "--json").json["max_depth"] == 7
    assert "max_depth" not in shop("queues", "limit", "default", "none", "--json").json


def test_what_an_operator_does_is_in_the_log_with_his_name(shop: Call) -> None:
    shop("queues", "pause", "mail", "--new")
    shop("queues", "limit", "mail", "7")
    shop("queues", "resume", "mail")
    shop("schedules", "add", "lamps", "30 9 * * 1-5", "pack", "--args", '{"item": "lamp"}', "--as", "Ada")
    for verb in ("pause", "resume", "remove"):
        shop("schedules", verb, "lamps", "--as", "bob")

    told = shop("events", "tail", "--after", "0", "--json").json_lines

    assert [event["type"] for event in told] == [
        *("queue.paused", "queue.limited", "queue.resumed"),
        *("schedule.changed", "schedule.paused", "schedule.resumed", "schedule.removed"),
    ]
    assert all(event["actor"].startswith("cli:") for event in told[:3])
    assert [event["actor"] for event in told[3:]] == ["ada", "bob", "bob", "bob"]
    assert told[1]["payload"] == {"queue": "mail", "max_depth": 7}
    assert told[3]["payload"]["schedule"] == "lamps"


def test_schedules_of_the_app_and_those_added_by_hand(shop: Call) -> None:
    work()
    added = shop(
        "schedules", "add", "lamps", "30 9 * * 1-5", "pack", "--args", '{"item": "lamp"}', "--tz", "Asia/Tokyo"
    )
    listed = {schedule["name"]: schedule for schedule in shop("schedules", "list", "--json").json["items"]}

    assert added.out.startswith("lamps: enqueues pack next at ")
    assert listed.keys() == {"lamps", "tidy"}
    assert listed["lamps"]["args"] == {"item": "lamp"}
    assert listed["lamps"]["next_at"].endswith("T00:30:00.000Z")
    assert listed["tidy"]["timezone"] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["x", "0 0 30 2 *", "pack"], 2, "invalid_schedule"),
        (["x", "every day", "pack"], 2, "invalid_schedule"),
        (["x", "* * * * *", "pack", "--tz", "Mars/North"], 2, "invalid_schedule"),
        (["x", "* * * * *", "pakc"], 3, "unknown_name"),
        (["x", "* * * * *", "pack", "--args", '{"count": 2}'], 2, "invalid_arguments"),
        (["x", "* * * * *", "tidy", "--priority", "11"], 2, "invalid_task"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused(shop: Call, arguments: list[str], code: int, error: str) -> None:
    answer = shop("schedules", "add", *arguments, "--json")

    assert (answer.code, answer.error["code"]) == (code, error)
    assert shop("schedules", "list", "--json").json == {"items": []}


def test_a_schedule_is_fired_by_hand_and_goes_on_as_before(shop: Call) -> None:
    work()
    before = shop("schedules", "list", "--json").json["items"][0]["next_at"]
    task_id = shop("schedules", "fire", "tidy").out.strip()

    assert shop("show", task_id, "--json").json["source"] == "schedule"
    assert shop("schedules", "list", "--json").json["items"][0]["next_at"] == before


def test_who_adds_a_schedule_is_the_author_of_its_tasks(shop: Call) -> None:
    added = shop(
        "schedules", "add", "lamps", "0 9 * * *", "pack", "--args", '{"item": "lamp"}', "--as", "ada", "--json"
    )
    task_id = shop("schedules", "fire", "lamps", "--as", "bob").out.strip()

    assert added.json["author"] == "ada"
    assert shop("show", task_id, "--json").json["author_id"] == "ada"


def test_a_firing_by_hand_that_a_rule_denies_is_told(shop: Call) -> None:
    rules = '[[guard]]\ndo = "deny"\nname = "pack"\nreason = "nothing is packed today"\n'
    assert shop("policies", "apply", "-", "--as", "root", stdin=rules).code == 0
    shop("schedules", "add", "lamps", "0 9 * * *", "pack", "--args", '{"item": "lamp"}')

    answer = shop("schedules", "fire", "lamps", "--json")

    assert (answer.code != 0, answer.error["code"]) == (True, "denied")
    assert shop("tasks", "--json").json["items"] == []


def test_a_schedule_is_paused_resumed_and_removed(shop: Call) -> None:
    work()
    assert shop("schedules", "pause", "tidy").out == "tidy: paused\n"
    assert shop("schedules", "list", "--json").json["items"][0]["paused"] is True
    assert shop("schedules", "resume", "tidy").out.startswith("tidy: enqueues tidy next at ")
    assert shop("schedules", "remove", "tidy").out == "tidy: removed\n"
    assert shop("schedules", "list").err.startswith("No schedules.")


@pytest.mark.parametrize("verb", ["pause", "resume", "remove", "fire"])
def test_a_schedule_that_does_not_exist_is_told(shop: Call, verb: str) -> None:
    answer = shop("schedules", verb, "nothing", "--json")

    assert (answer.code, answer.error["code"]) == (3, "unknown_schedule")


def test_workers_are_listed_with_how_they_are_doing(shop: Call) -> None:
    assert "No workers." in shop("workers").err
    work()
    [worker] = shop("workers", "--json").json["items"]

    assert (worker["worker"]["id"], worker["worker"]["names"]) == ("test-worker", ["pack", "send", "tidy", "wobble"])
    assert worker["liveness"] in ("working", "silent")
    assert "test-worker" in shop("workers").out


def test_the_event_log_is_read_from_any_place(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    shop("enqueue", "pack", "item=sofa")
    work()
    everything = shop("events", "tail", "--after", "0", "--json").json_lines
    of_one = shop("events", "tail", "--task", task_id[-10:], "--json").json_lines

    assert [event["seq"] for event in everything] == sorted(event["seq"] for event in everything)
    assert [event["type"] for event in of_one] == ["task.created", "task.claimed", "task.succeeded"]
    assert shop("events", "tail", "--after", str(everything[-2]["seq"]), "--json").json_lines == everything[-1:]
    created = shop("events", "tail", "--type", "task.created", "--json").json_lines
    assert {event["type"] for event in created} == {"task.created"}
    assert "task.succeeded" in shop("events", "tail").out


def test_stats_show_everything_at_once(shop: Call) -> None:
    shop("enqueue", "send", "address=nowhere")
    shop("enqueue", "pack", "item=lamp", "--delay", "1h")
    work()
    told = shop("stats", "--json").json
    text = shop("stats").out

    assert told["dead_letters"] == 1
    assert {queue["name"]: queue["by_status"] for queue in told["queues"]} == {"default": {"pending": 1, "failed": 1}}
    assert "1 pending, 1 failed" in text
    assert "2/min created, 0/min completed, 1/min failed" in text


def test_top_writes_one_document_per_look(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    looks = shop("top", "--once", "--json").json_lines

    assert len(looks) == 1
    assert looks[0]["running"] == []
    assert shop("top", "--once").lines[1].startswith("tasks")
    assert shop("top", "--interval", "0.01").code == 2
