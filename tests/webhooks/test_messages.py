"""What webhooks are told: ids and facts in a small body, and nothing that people or programs have written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from ade import Task
from ade.errors import InvalidWebhook
from ade.webhooks.deliveries import FACTS, LARGEST_BODY, body_of
from ade.webhooks.model import check_patterns, matches
from tests.depth import examples
from tests.domain import Event

TASK = "01900000-0000-7000-8000-000000000001"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(st.sampled_from(sorted(FACTS)), inner, max_size=3),
    max_leaves=30,
)


def test_the_form_is_that_of_standard_webhooks() -> None:
    event = Event(
        type="task.failed",
        at=1_760_000_000_120,
        task_id=TASK,
        actor="ada",
        payload={"attempt": 3, "kind": "raised", "error": "ValueError: the password is hush", "reason": "hush"},
        seq=7,
    )

    assert json.loads(body_of(event)) == {
        "type": "task.failed",
        "timestamp": "2025-10-09T08:53:20.120Z",
        "data": {
            "seq": 7,
            "task_id": TASK,
            "actor": "ada",
            "attempt": 3,
            "kind": "raised",
            "error_type": "ValueError",
        },
    }


@pytest.mark.parametrize(
    "field",
    [
        *("args", "arguments", "result", "progress", "preview", "output", "error", "reason", "text"),
        *("comment", "purpose", "vote", "gate", "old", "new", "conditions", "missing", "errors", "ip"),
        *("session", "password", "secret", "description", "said", "url", "origin"),
    ],
)
def test_what_may_say_anything_is_not_told(field: str) -> None:
    event = Event(type="x.y", at=0, payload={field: "hush", "items": [{field: "hush", "resource": "db:main"}]}, seq=1)

    assert json.loads(body_of(event))["data"] == {"seq": 1, "items": [{"resource": "db:main"}]}


def test_a_fact_that_is_a_structure_is_not_told() -> None:
    payload: dict[str, object] = {"name": {"args": "hush"}, "queue": [["hush"], {"args": "hush"}, "a"], "kind": None}

    assert json.loads(body_of(Event(type="x.y", at=0, payload=payload, seq=1)))["data"] == {
        "seq": 1,
        "queue": [{}, "a"],
    }


@given(st.dictionaries(st.sampled_from(sorted(FACTS)), VALUES), st.none() | st.text(max_size=500))
@settings(max_examples=examples(12))
def test_a_body_is_small_whatever_happened_and_always_the_same(payload: dict[str, object], actor: str | None) -> None:
    event = Event(type="x.y", at=0, actor=actor, payload=payload, seq=1)
    body = body_of(event)

    assert len(body) <= LARGEST_BODY
    assert body == body_of(event)
    assert json.loads(body)["data"]["seq"] == 1


def test_a_body_that_would_be_too_large_keeps_its_ids() -> None:
    payload: dict[str, object] = {name: ["\u20ac" * 199] * 50 for name in sorted(FACTS)[:5]}

    data = json.loads(body_of(Event(type="x.y", at=0, task_id=TASK, payload=payload, seq=1)))["data"]

    assert data == {"seq": 1, "task_id": TASK, "cut": True}


def test_a_payload_cannot_pose_as_another_event() -> None:
    payload: dict[str, object] = {"seq": 99, "actor": "root", "task_id": "other"}

    data = json.loads(body_of(Event(type="x.y", at=0, task_id=TASK, actor="eve", payload=payload, seq=1)))["data"]

    assert data == {"seq": 1, "task_id": TASK, "actor": "eve"}


def test_patterns_say_which_events() -> None:
    assert matches(["task.*"], "task.failed")
    assert matches(["agent.run.*"], "agent.run.ended")
    assert matches(["alert", "task.dlq"], "task.dlq")
    assert matches(["*"], "alert")
    assert not matches(["task.*"], "task")
    assert not matches(["task.*"], "tasks.failed")
    assert not matches(["task.fail"], "task.failed")
    assert not matches([], "task.failed")


@pytest.mark.parametrize(
    "wrong", [(), ("",), ("task.",), (".x",), ("*.failed",), ("task.*.x",), ("Task",), ("a b",), ("x" * 101,), ("a\n",)]
)
def test_what_is_no_pattern_is_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(InvalidWebhook):
        check_patterns(wrong)


def test_patterns_are_few() -> None:
    check_patterns([f"task.x{number}" for number in range(50)])
    with pytest.raises(InvalidWebhook, match="1 to 50"):
        check_patterns([f"task.x{number}" for number in range(51)])


@pytest.mark.parametrize("kind", ["session.opened", "token.created", "login_link.used", "access.foreign"])
def test_how_somebody_gets_in_is_not_told(kind: str) -> None:
    payload: dict[str, object] = {
        "account": "ada", "token": "t-1", "scopes": ["read"], "session": "ab", "ip": "192.0.2.1", "expires_at": 1,
    }  # fmt: skip

    assert json.loads(body_of(Event(type=kind, at=0, payload=payload, seq=1)))["data"] == {"seq": 1, "account": "ada"}


def test_a_message_about_a_task_says_whose_it_is_and_where_to_find_it() -> None:
    task = Task(
        id=TASK, name="mail.send", queue="mail", tags=("urgent", "x" * 300), author_id="ada", args=Raw(b'{"secret":1}')
    )
    event = Event(type="task.claimed", at=0, task_id=TASK, payload={"queue": "of the event"}, seq=1)

    data = json.loads(body_of(event, task, "https://ade.example.org/"))["data"]

    assert data.pop("tags")[0] == "urgent"
    assert data == {
        "seq": 1,
        "task_id": TASK,
        "name": "mail.send",
        "queue": "of the event",
        "author": "ada",
        "link": f"https://ade.example.org/api/v1/tasks/{TASK}",
    }
    assert json.loads(body_of(event, task))["data"]["link"] == f"/api/v1/tasks/{TASK}"
