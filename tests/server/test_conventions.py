"""What every route has in common: how it refuses, how it tells versions apart, how it may be asked twice."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.domain import Role
from tests.server.conftest import ServerHarness, start_server
from tests.stores.urls import store_url

TASKS = "/api/v1/tasks"


async def test_whatever_is_wrong_is_a_problem(sqlite_server: ServerHarness) -> None:
    server = sqlite_server
    nowhere = await server.ask("GET", "/api/v1/nowhere")
    assert (nowhere.status, nowhere.code) == (404, "not_found")
    wrong_method = await server.ask("DELETE", TASKS)
    assert (wrong_method.status, wrong_method.code) == (405, "method_not_allowed")
    assert wrong_method.headers["allow"] == "GET, HEAD, POST"
    large = await server.ask("POST", TASKS, raw=b'{"name":"' + b"x" * (9 << 20) + b'"}')
    assert (large.status, large.code) == (413, "payload_too_large")
    form = await server.ask("POST", TASKS, raw=b"name=greet", content_type="application/x-www-form-urlencoded")
    assert (form.status, form.code) == (415, "unsupported_media_type")
    unknown = await server.ask("POST", TASKS, {"name": "gret"})
    assert (unknown.status, unknown.code) == (422, "unknown_name")
    missing = await server.ask("GET", f"{TASKS}/01a1e503-5dba-7f16-87d1-29e75c2bd002")
    assert (missing.status, missing.code) == (404, "unknown_task")
    for answer in (nowhere, wrong_method, large, form, unknown, missing):
        told = answer.json()
        assert told["instance"] == f"urn:ade:request:{answer.headers['x-request-id']}"
        meaning = await server.ask("GET", told["type"], by=None)
        assert (meaning.status, meaning.json()["status"]) == (200, answer.status)


BAD_BODIES = [
    (b'{"name": "greet", "priority": true}', 422),
    (b'{"name": "greet", "priority": "5"}', 422),
    (b'{"name": "greet", "priority": -1}', 422),
    (b'{"name": "greet", "priority": 10000000000000000000000}', 422),
    (b'{"name": 5}', 422),
    (b'{"name": "greet", "args": []}', 422),
    (b'{"name": "greet", "args": {"a": NaN}}', 400),
    (b'{"name": "greet", "args": {"a": Infinity}}', 400),
    (b'{"name": "greet", "args": {"a": 1e400}}', 400),
    (b'{"name": "greet", "name": "greet"}', 400),
    (b'{"name": "greet", "args": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
    (b'{"name": "gr\xff"}', 400),
    (b'{"name": "greet", "description": "\\ud800"}', 400),
    (b'{"name": "greet", "description": "a\\u0000b"}', 400),
    (b'{"name": "greet"', 400),
    (b"", 415),
    (b'"greet"', 422),
    (b'{"name": "greet", "status": "completed"}', 422),
    (b'{"name": "greet", "author_id": "somebody"}', 422),
    (b'{"name": "greet", "author": "somebody"}', 422),
    (b'{"name": "greet", "approved": true}', 422),
    (b'{"name": "greet", "deadline": "9999-12-31T23:59:59Z", "run_at": "10000-01-01T00:00:00Z"}', 422),
    (b'{"name": "greet", "run_at": "2026-01-31T12:00:00"}', 422),
    (b'{"name": "greet", "queue": "a:{b}"}', 422),
    (b'{"name": "greet", "queue": "../etc"}', 422),
    (b'{"name": "greet\\n"}', 422),
    (b'{"name": "' + b"x" * 10_240 + b'"}', 422),
    (b'{"name": "greet", "tags": ["a", 5]}', 422),
]


@pytest.mark.parametrize(("body", "status"), BAD_BODIES, ids=range(len(BAD_BODIES)))
async def test_a_bad_body_is_refused_and_nothing_is_stored(
    sqlite_server: ServerHarness, body: bytes, status: int
) -> None:
    answer = await sqlite_server.ask("POST", TASKS, raw=body)
    assert (answer.status, bool(answer.code)) == (status, True), answer
    assert (await sqlite_server.ask("GET", TASKS)).json()["items"] == []


@pytest.mark.parametrize("bad", ["a:b", "{x}", "..%2F..", "a%0Ab", "x" * 10_000, "%00", "%ff", "%F0%9F"])
@pytest.mark.parametrize("path", ["/api/v1/tasks/{}", "/api/v1/queues/{}", "/api/v1/users/{}", "/api/v1/workers/{}"])
async def test_what_is_no_id_is_refused(sqlite_server: ServerHarness, path: str, bad: str) -> None:
    answer = await sqlite_server.ask("GET", path.format(bad), by=Role.ADMIN)
    assert answer.status in (400, 404, 414, 422), answer
    assert answer.code


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "limit=1&limit=2",
        "nothing=1",
        "status=done",
        "cursor=abc",
        "limit",
        "created_from=now",
        "a=%ff",
    ],
)
async def test_a_bad_parameter_is_refused(sqlite_server: ServerHarness, query: str) -> None:
    answer = await sqlite_server.ask("GET", f"{TASKS}?{query}")
    assert (answer.status, bool(answer.code)) == (400, True), answer


async def test_a_list_is_read_page_by_page_and_a_cursor_belongs_to_its_filter(server: ServerHarness) -> None:
    ids = [(await server.task(tags=["many"]))["id"] for _ in range(5)]
    first = (await server.ask("GET", f"{TASKS}?tag=many&limit=2&order=oldest")).json()
    second = (await server.ask("GET", f"{TASKS}?tag=many&limit=3&order=oldest&cursor={first['next']}")).json()
    assert [task["id"] for task in first["items"] + second["items"]] == ids
    assert "next" not in second
    other = await server.ask("GET", f"{TASKS}?tag=few&limit=2&order=oldest&cursor={first['next']}")
    assert (other.status, other.code) == (400, "invalid_cursor")


async def test_times_are_written_as_the_standard_says(server: ServerHarness) -> None:
    task = await server.task(run_at="2031-05-01T12:00:00.250+02:00")
    assert task["run_after"] == "2031-05-01T10:00:00.250Z"
    found = await server.ask("GET", f"{TASKS}?created_before={task['created_at']}")
    assert found.json()["items"] == []
    later = await server.ask("GET", f"{TASKS}?created_from={task['created_at']}")
    assert [each["id"] for each in later.json()["items"]] == [task["id"]]


async def test_who_has_seen_a_task_is_not_sent_it_again(server: ServerHarness) -> None:
    path = f"{TASKS}/{(await server.task())['id']}"
    first = await server.ask("GET", path)
    assert first.headers["etag"] == '"1"'
    again = await server.ask("GET", path, if_none_match=first.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", '"1"')


async def test_nobody_changes_what_he_has_not_seen(server: ServerHarness) -> None:
    path = f"{TASKS}/{(await server.task(draft=True))['id']}"
    unsaid = await server.ask("PATCH", path, {"description": "new"})
    assert (unsaid.status, unsaid.code) == (428, "precondition_required")
    stale = await server.ask("PATCH", path, {"description": "new"}, if_match='"7"')
    assert (stale.status, stale.code) == (412, "precondition_failed")
    edited = await server.ask("PATCH", path, {"description": "new"}, if_match='"1"')
    assert (edited.status, edited.json()["description"], edited.headers["etag"]) == (200, "new", '"2"')


async def test_a_request_with_a_key_is_carried_out_once_and_answered_again(server: ServerHarness) -> None:
    body = {"name": "greet", "args": {"a": 1}}
    first = await server.ask("POST", TASKS, body, idempotency_key="k-1")
    again = await server.ask("POST", TASKS, body, idempotency_key="k-1")
    assert (again.status, again.body, again.headers["location"]) == (201, first.body, first.headers["location"])
    assert again.headers["idempotency-replayed"] == "true"
    other = await server.ask("POST", TASKS, {**body, "args": {}}, idempotency_key="k-1")
    assert (other.status, other.code) == (422, "idempotency_conflict")
    foreign = await server.ask("POST", TASKS, body, idempotency_key="k-1", by=Role.ADMIN)
    assert foreign.json()["id"] != first.json()["id"]  # keys of one account say nothing about another's


async def test_a_hundred_at_once_with_one_key_make_one_task(server: ServerHarness) -> None:
    async def create() -> tuple[int, str]:
        answer = await server.ask("POST", TASKS, {"name": "greet"}, idempotency_key="k-2")
        return answer.status, answer.json().get("id", "") if answer.status == 201 else answer.code

    await server.token(Role.OPERATOR)
    answers = await asyncio.gather(*[create() for _ in range(100)])
    made = {task_id for status, task_id in answers if status == 201}
    assert len(made) == 1
    assert {status for status, _ in answers} <= {201, 409}
    assert len((await server.ask("GET", TASKS)).json()["items"]) == 1


async def test_a_head_is_a_get_without_its_body(sqlite_server: ServerHarness) -> None:
    task = await sqlite_server.task()
    got = await sqlite_server.ask("GET", f"{TASKS}/{task['id']}")
    head = await sqlite_server.ask("HEAD", f"{TASKS}/{task['id']}")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


async def test_somebody_waits_for_the_end_of_a_task(server: ServerHarness) -> None:
    task = await server.task()
    waiting = asyncio.create_task(server.ask("GET", f"{TASKS}/{task['id']}?wait=30"))
    cancelled = await server.ask("POST", f"{TASKS}/{task['id']}/cancel", {"reason": "enough"})
    assert cancelled.status == 200
    assert (await waiting).json()["status"] == "cancelled"
    preferred = await server.ask("GET", f"{TASKS}/{task['id']}", prefer="wait=5")
    assert preferred.headers["preference-applied"] == "wait=5"
    too_long = await server.ask("GET", f"{TASKS}/{task['id']}?wait=3600")
    assert (too_long.status, too_long.code) == (400, "bad_request")


async def test_who_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.read_rate": "3/m"}) as server:
        answers = [await server.ask("GET", TASKS) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[0].headers["ratelimit-policy"] == '"read";q=3;w=60'
        assert int(answers[3].headers["retry-after"]) >= 1
        assert answers[3].headers["ratelimit"].startswith('"read";r=0;t=')
        assert (await server.ask("GET", TASKS, by=Role.ADMIN)).status == 200  # others are not touched by it
        assert (await server.ask("GET", "/livez", by=None)).status == 200


async def test_a_forwarding_header_makes_nobody_another(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.login_rate": "3/m"}) as server:
        body = {"name": "nobody", "password": "wrong"}
        statuses = [
            (await server.ask("POST", "/api/v1/sessions", body, by=None, x_forwarded_for=f"10.0.0.{number}")).status
            for number in range(5)
        ]
        assert statuses == [401, 401, 401, 429, 429]


async def test_what_breaks_inside_is_told_without_its_traces(
    sqlite_server: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert sqlite_server.app.opener.opened is not None
    await sqlite_server.token(Role.OPERATOR)
    await sqlite_server.app.opener.opened.stores.close()
    answer = await sqlite_server.ask("GET", TASKS)
    assert answer.status in (500, 503)
    assert b"Traceback" not in answer.body
    assert b".py" not in answer.body
    assert answer.json()["instance"].rpartition(":")[2] in caplog.text


async def test_what_is_no_http_is_refused_with_a_problem(sqlite_server: ServerHarness) -> None:
    port = int(sqlite_server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"nonsense\r\n\r\n")
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == "bad_request"
