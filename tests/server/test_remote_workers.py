"""Workers behind HTTP, over real sockets: they race, lose what they had, wait for work, and are told so."""

import asyncio
from collections import Counter
from typing import Any

from tests.domain import Role, lose_lease
from tests.server.conftest import Answer, House

API = "/api/v1"
BOTH = (Role.WORKER, Role.ADMIN)  # two accounts that may work


async def registered(house: House, by: Role) -> None:
    answer = await house.ask("PUT", f"{API}/workers/one", {"definitions": [{"name": "greet"}]}, by=by)
    assert answer.status == 200, answer


async def claim(house: House, by: Role, **more: object) -> list[dict[str, Any]]:
    answer = await house.ask("POST", f"{API}/runs/claim", {"worker": "one", **more}, by=by)
    assert answer.status == 200, answer
    runs: list[dict[str, Any]] = answer.json()["runs"]
    return runs


async def say(house: House, by: Role, run: dict[str, Any], verb: str, **more: object) -> Answer:
    return await house.ask("POST", f"{API}/runs/{run['run_id']}/{verb}", {"task_id": run["task"]["id"], **more}, by=by)


async def test_two_workers_race_and_every_task_is_done_once(house: House) -> None:
    for by in BOTH:
        await registered(house, by)
    batch = {"tasks": [{"name": "greet", "args": {"number": number}} for number in range(40)]}
    made = await house.ask("POST", f"{API}/tasks/bulk", batch)
    ids = [task["id"] for task in made.json()["items"]]
    assert (made.status, len(ids)) == (201, 40)
    done: Counter[str] = Counter()

    async def work(by: Role) -> None:
        while runs := await claim(house, by, count=3):
            for run in runs:
                answer = await say(house, by, run, "complete", result=run["task"]["args"])
                assert (answer.status, answer.json()["status"]) == (200, "completed")
                done[run["task"]["id"]] += 1

    await asyncio.gather(*(work(by) for by in BOTH for _ in range(2)))
    assert done == Counter(ids)
    result = await house.ask("GET", f"{API}/tasks/{ids[7]}/result")
    assert result.json()["result"] == {"number": 7}


async def test_a_result_that_comes_too_late_is_refused(house: House) -> None:
    task = await house.task()
    for by in BOTH:
        await registered(house, by)
    [run] = await claim(house, Role.WORKER)
    [held] = await house.stores.tasks.get([task["id"]])
    assert held is not None
    await house.stores.tasks.commit(lose_lease(held, now=house.stores.clock.now()))  # as a sweep does

    late = await say(house, Role.WORKER, run, "complete", result="late")
    assert (late.status, late.code) == (409, "stale_lease")
    [again] = await claim(house, Role.ADMIN)
    for by, stale in ((Role.WORKER, run), (Role.ADMIN, run), (Role.WORKER, again)):
        for verb, words in (
            ("complete", {"result": 1}),
            ("fail", {"error": {"type": "X", "message": "no"}}),
            ("release", {}),
            ("hold", {"step": "a step"}),
            ("progress", {"progress": 1}),
            ("output", {"lines": [{"text": "x"}]}),
        ):
            refused = await say(house, by, stale, verb, **words)
            assert (refused.status, refused.code) == (409, "stale_lease"), verb
    beat = {"worker": "one", "runs": {run["run_id"]: task["id"]}}
    answer = await house.ask("POST", f"{API}/runs/heartbeat", beat, by=Role.WORKER)
    gone = [{"run_id": run["run_id"], "task_id": task["id"], "status": "running"}]
    assert (answer.status, answer.json()["gone"]) == (200, gone)
    assert (await say(house, Role.ADMIN, again, "complete", result="in time")).status == 200
    result = await house.ask("GET", f"{API}/tasks/{task['id']}/result")
    assert result.json()["result"] == "in time"


async def test_a_claim_waits_until_there_is_work(house: House) -> None:
    await registered(house, Role.WORKER)
    waiting = asyncio.create_task(claim(house, Role.WORKER, wait=20))
    first = await house.task()
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


async def test_bad_words_are_refused(small_house: House) -> None:
    await registered(small_house, Role.WORKER)
    for path, body, status in BAD_WORDS:
        answer = await small_house.ask("POST", f"{API}/runs/{path}", body, by=Role.WORKER)
        assert (answer.status, bool(answer.code)) == (status, True), (path, body)


async def test_a_bulk_action_is_previewed_and_done(house: House) -> None:
    for _ in range(3):
        await house.task(tags=["old"])
    kept = await house.task()
    body = {"action": "cancel", "filter": {"tag": "old"}, "reason": "no need", "limit": 2}
    assert (await house.ask("POST", f"{API}/bulk-actions/preview", body)).json()["count"] == 3
    answers = [(await house.ask("POST", f"{API}/bulk-actions", body)).json() for _ in range(3)]
    assert [(len(answer["changed"]), answer["is_more"]) for answer in answers] == [
        (2, True),
        (1, False),
        (0, False),
    ]
    left = await house.ask("GET", f"{API}/tasks?status=pending")
    assert [task["id"] for task in left.json()["items"]] == [kept["id"]]
    empty = await house.ask("POST", f"{API}/bulk-actions", {"action": "cancel", "filter": {}})
    assert (empty.status, empty.code) == (400, "invalid_filter")
