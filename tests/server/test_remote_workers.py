"""Workers behind HTTP, over real sockets: they race, lose what they had, wait for work, and are told so."""

import asyncio
from collections import Counter
from typing import Any

from tests.domain import Role, lose_lease
from tests.server.conftest import Answer, ServerHarness

API = "/api/v1"
BOTH = (Role.WORKER, Role.ADMIN)  # two accounts that may work


async def registered(server: ServerHarness, by: Role) -> None:
    answer = await server.ask("PUT", f"{API}/workers/one", {"definitions": [{"name": "greet"}]}, by=by)
    assert answer.status == 200, answer


async def claim(server: ServerHarness, by: Role, **more: object) -> list[dict[str, Any]]:
    answer = await server.ask("POST", f"{API}/runs/claim", {"worker": "one", **more}, by=by)
    assert answer.status == 200, answer
    runs: list[dict[str, Any]] = answer.json()["runs"]
    return runs


async def say(server: ServerHarness, by: Role, run: dict[str, Any], verb: str, **more: object) -> Answer:
    return await server.ask("POST", f"{API}/runs/{run['run_id']}/{verb}", {"task_id": run["task"]["id"], **more}, by=by)


async def test_two_workers_race_and_every_task_is_done_once(server: ServerHarness) -> None:
    for by in BOTH:
        await registered(server, by)
    batch = {"tasks": [{"name": "greet", "args": {"number": number}} for number in range(40)]}
    made = await server.ask("POST", f"{API}/tasks/bulk", batch)
    ids = [task["id"] for task in made.json()["items"]]
    assert (made.status, len(ids)) == (201, 40)
    done: Counter[str] = Counter()

    async def work(by: Role) -> None:
        while runs := await claim(server, by, count=3):
            for run in runs:
                answer = await say(server, by, run, "complete", result=run["task"]["args"])
                assert (answer.status, answer.json()["status"]) == (200, "completed")
                done[run["task"]["id"]] += 1

    await asyncio.gather(*(work(by) for by in BOTH for _ in range(2)))
    assert done == Counter(ids)
    result = await server.ask("GET", f"{API}/tasks/{ids[7]}/result")
    assert result.json()["result"] == {"number": 7}


async def test_a_result_that_comes_too_late_is_refused(server: ServerHarness) -> None:
    task = await server.task()
    for by in BOTH:
        await registered(server, by)
    [run] = await claim(server, Role.WORKER)
    [held] = await server.stores.tasks.get([task["id"]])
    assert held is not None
    await server.stores.tasks.commit(lose_lease(held, now=server.stores.clock.now()))  # as a sweep does

    [again] = await claim(server, Role.ADMIN)
    for by, stale in ((Role.WORKER, run), (Role.ADMIN, run), (Role.WORKER, again)):
        for verb, words in (
            ("complete", {"result": 1}),
            ("fail", {"error": {"type": "X", "message": "no"}}),
            ("release", {}),
            ("hold", {"step": "a step"}),
            ("progress", {"progress": 1}),
            ("output", {"lines": [{"text": "x"}]}),
        ):
            refused = await say(server, by, stale, verb, **words)
            assert (refused.status, refused.code) == (409, "stale_lease"), verb
    beat = {"worker": "one", "runs": {run["run_id"]: task["id"]}}
    answer = await server.ask("POST", f"{API}/runs/heartbeat", beat, by=Role.WORKER)
    gone = [{"run_id": run["run_id"], "task_id": task["id"], "status": "running"}]
    assert (answer.status, answer.json()["gone"]) == (200, gone)
    assert (await say(server, Role.ADMIN, again, "complete", result="in time")).status == 200
    result = await server.ask("GET", f"{API}/tasks/{task['id']}/result")
    assert result.json()["result"] == "in time"


async def test_a_claim_waits_until_there_is_work(server: ServerHarness) -> None:
    await registered(server, Role.WORKER)
    waiting = asyncio.create_task(claim(server, Role.WORKER, wait=20))
    first = await server.task()
    async with asyncio.timeout(60):
        assert [run["task"]["id"] for run in await waiting] == [first["id"]]


BAD_WORDS: list[tuple[str, object, int]] = [
    ("claim", {"worker": "nobody"}, 404),
    ("claim", {"worker": "http:the-admin:one"}, 404),
    ("claim", {"worker": "one", "count": 101}, 422),
    ("claim", {"worker": "one", "wait": 21}, 422),
    ("claim", {"worker": "one", "names": []}, 422),
    ("claim", {"worker": "one", "lease_s": 0}, 422),
    ("claim", {"worker": "one", "run_ids": ["mine"]}, 422),
    ("heartbeat", {"worker": "one", "runs": ["r"]}, 422),
    ("r/complete", {}, 422),
    ("r/complete", {"task_id": "no id"}, 404),
    ("r/fail", {"task_id": "01a1e503-5dba-7f16-87d1-29e75c2bd002", "error": {"type": "", "message": ""}}, 422),
    ("r/release", {"task_id": "01a1e503-5dba-7f16-87d1-29e75c2bd002"}, 409),
]


async def test_bad_words_are_refused(sqlite_server: ServerHarness) -> None:
    await registered(sqlite_server, Role.WORKER)
    for path, body, status in BAD_WORDS:
        answer = await sqlite_server.ask("POST", f"{API}/runs/{path}", body, by=Role.WORKER)
        assert (answer.status, bool(answer.code)) == (status, True), (path, body)


async def test_a_bulk_action_is_previewed_and_done(server: ServerHarness) -> None:
    for _ in range(3):
        await server.task(tags=["old"])
    kept = await server.task()
    body = {"action": "cancel", "filter": {"tag": "old"}, "reason": "no need", "limit": 2}
    assert (await server.ask("POST", f"{API}/bulk-actions/preview", body)).json()["count"] == 3
    answers = [(await server.ask("POST", f"{API}/bulk-actions", body)).json() for _ in range(3)]
    assert [(len(answer["changed"]), answer["is_more"]) for answer in answers] == [
        (2, True),
        (1, False),
        (0, False),
    ]
    left = await server.ask("GET", f"{API}/tasks?status=pending")
    assert [task["id"] for task in left.json()["items"]] == [kept["id"]]
    empty = await server.ask("POST", f"{API}/bulk-actions", {"action": "cancel", "filter": {}})
    assert (empty.status, empty.code) == (400, "invalid_filter")


async def test_results_of_many_runs_are_handed_in_together_and_each_has_its_report(server: ServerHarness) -> None:
    for by in BOTH:
        await registered(server, by)
    for number in range(4):
        await server.task(args={"number": number})
    await server.task(locks=["db:main"])
    runs = await claim(server, Role.WORKER, count=5)
    await server.task()
    [anothers] = await claim(server, Role.ADMIN)
    lost = runs.pop()
    [held] = await server.stores.tasks.get([lost["task"]["id"]])
    assert held is not None
    await server.stores.tasks.commit(lose_lease(held, now=server.stores.clock.now()))
    named = [*runs, lost, anothers, runs[0], {"run_id": "nobody", "task": {"id": "no-id"}}]
    body = {
        "runs": [
            {"run_id": run["run_id"], "task_id": run["task"]["id"], "result": {"of": run["run_id"]}} for run in named
        ]
    }
    for _ in range(2):  # repeating it is harmless
        answer = await server.ask("POST", f"{API}/runs/complete", body, by=Role.WORKER)
        assert answer.status == 200, answer
        reports = answer.json()["items"]
        assert [report["run_id"] for report in reports] == [run["run_id"] for run in named]
        told = [report.get("status") or report["code"] for report in reports]
        assert told == ["completed"] * 5 + ["stale_lease", "completed", "unknown_task"]  # no one else has the lost one
    for run in runs:
        result = await server.ask("GET", f"{API}/tasks/{run['task']['id']}/result")
        assert result.json()["result"] == {"of": run["run_id"]}
    assert (await say(server, Role.ADMIN, anothers, "complete", result=1)).status == 200
    assert await server.stores.maintenance.check_invariants() == []


async def test_too_many_results_at_once_are_refused(sqlite_server: ServerHarness) -> None:
    body = {"runs": [{"run_id": "r", "task_id": "t"}] * 101}
    assert (await sqlite_server.ask("POST", f"{API}/runs/complete", body, by=Role.WORKER)).status == 422
