"""Locking what one may not lock: over HTTP, by a task, by its run, from Python, and through a worker behind HTTP."""

import pytest

from ade import Ade
from ade.approvals.errors import InvalidRulebook
from ade.approvals.rulebook_document import as_document
from ade.errors import LockNotPermitted
from tests.attacks.site import Site
from tests.domain import read_rulebook
from tests.waiting import eventually

PROD = {"names": ["prod:*"], "roles": ["admin"], "accounts": ["bot"]}


async def acquire(site: Site, by: str, name: str) -> tuple[int, str]:
    answer = await site.ask(by, "POST", "/locks/acquire", {"locks": [name], "wait": 0})
    return answer.status, "" if answer.status < 400 else answer.json()["code"]


async def test_an_account_locks_only_what_the_rulebook_lets_it(site: Site) -> None:
    await site.rules(locks=[PROD])

    assert await acquire(site, "olga", "prod:db") == (403, "lock_not_permitted")
    assert await acquire(site, "olga", "PROD:db") == (403, "lock_not_permitted"), "however it is written"
    assert (await acquire(site, "olga", "test:db"))[0] == 200, "no rule names it"
    assert (await acquire(site, "ada", "prod:web"))[0] == 200, "by her role"
    assert (await acquire(site, "bot", "prod:mail"))[0] == 200, "by its name"


async def test_all_rules_that_name_a_resource_must_admit_the_account(site: Site) -> None:
    await site.rules(locks=[PROD, {"names": ["*"], "accounts": ["ada"]}])

    assert (await acquire(site, "ada", "prod:db"))[0] == 200
    assert await acquire(site, "bot", "prod:web") == (403, "lock_not_permitted")
    assert await acquire(site, "bot", "test:db") == (403, "lock_not_permitted")


async def test_a_request_for_two_locks_of_which_one_is_forbidden_gets_none(site: Site) -> None:
    await site.rules(locks=[PROD])

    answer = await site.ask("olga", "POST", "/locks/acquire", {"locks": ["test:db", "prod:db"], "wait": 0})

    assert answer.status == 403
    assert (await site.ask("rita", "GET", "/locks")).json()["items"] == []


async def test_a_task_with_a_lock_that_its_author_may_not_take_is_not_stored(site: Site) -> None:
    await site.rules(locks=[PROD | {"accounts": ["olga"]}])

    body = {"name": "pay", "args": {"to": "me"}, "locks": ["prod:db"]}
    answer = await site.ask("bot", "POST", "/tasks", body)

    assert (answer.status, answer.json()["code"]) == (403, "lock_not_permitted")
    assert (await site.ask("olga", "GET", "/tasks")).json()["items"] == []


async def test_a_rule_that_comes_later_stops_a_task_that_waits(site: Site) -> None:
    task = await site.enqueue("pay", args={"to": "me"}, locks=["prod:db"], queue="late")
    await site.rules(locks=[PROD | {"accounts": ["olga"]}])

    async with site.server.app.worker(queues=["late"]):
        ended = await site.until(task["id"], "failed")

    assert ended.error is not None
    assert (ended.error.kind, ended.error.type) == ("unrecoverable", "LockNotPermitted")
    assert site.done == []


async def test_a_run_locks_in_the_name_of_its_author_and_not_of_its_worker(site: Site) -> None:
    """The worker's process is started by an account that may lock everything."""
    await site.rules(locks=[PROD | {"accounts": ["olga"]}])
    app = site.server.app

    @app.task(name="locker", max_attempts=1)
    async def locker(name: str) -> str:
        async with app.lock(name):
            return "locked"

    async def is_registered() -> bool:
        return any(each.name == "locker" for each in await site.stores.workers.definitions())

    async with app.worker(queues=["lockers"]):
        await eventually(is_registered)
        forbidden = await site.enqueue("locker", by="bot", args={"name": "prod:db"}, queue="lockers")
        allowed = await site.enqueue("locker", by="olga", args={"name": "prod:db"}, queue="lockers")
        ended = await site.until(forbidden["id"], "failed")
        await site.until(allowed["id"], "completed")

    assert ended.error is not None
    assert (ended.error.kind, ended.error.type) == ("unrecoverable", "LockNotPermitted")


async def test_python_code_without_an_account_locks_nothing_that_is_ruled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.rules(locks=[PROD | {"accounts": ["olga"]}])
    app: Ade = site.server.app

    with pytest.raises(LockNotPermitted, match="without an account"):
        async with app.lock("prod:db"):
            pass
    monkeypatch.setenv("ADE_USER", "rita")
    with pytest.raises(LockNotPermitted, match="rita"):
        async with app.lock("prod:db"):
            pass
    monkeypatch.setenv("ADE_USER", "olga")
    async with app.lock("prod:db") as held:
        held.check()


async def test_a_remote_run_locks_in_the_name_of_its_author(site: Site) -> None:
    """The token of the worker may lock it, and the author may not; then the other way round."""
    await site.rules(locks=[PROD | {"roles": ["worker"], "accounts": ["olga"]}])
    worker = {"definitions": [{"name": "other"}], "queues": ["far"], "concurrency": 4}
    assert (await site.ask("machine", "PUT", "/workers/w1", worker)).status == 200
    statuses = []
    for author in ("bot", "olga"):
        await site.enqueue("other", by=author, queue="far")
        [run] = (await site.ask("machine", "POST", "/runs/claim", {"worker": "w1"})).json()["runs"]
        asked = {"locks": ["prod:db"], "wait": 0, "run": run["run_id"], "run_task": run["task"]["id"]}
        statuses.append((await site.ask("machine", "POST", "/locks/acquire", asked)).status)

    assert statuses == [403, 200]


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({"names": ["prod:*"]}, "roles"),
        ({"roles": ["operator"]}, "names"),
        ({"names": ["prod:*"], "role": ["operator"]}, "did you mean roles"),
        ({"names": ["prod:*"], "accounts": ["no such:name"]}, "accounts"),
    ],
)
def test_a_rulebook_says_what_is_wrong_with_its_lock_rules(rule: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidRulebook, match=word):
        read_rulebook({"locks": [rule]})


def test_a_rulebook_with_lock_rules_is_written_as_it_was_read() -> None:
    rulebook = read_rulebook({"locks": [PROD]})

    assert read_rulebook(as_document(rulebook)) == rulebook
    assert "locks" not in as_document(read_rulebook({})), "so that the digest of older rulebooks stays"
