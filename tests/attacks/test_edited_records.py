"""Attack: someone who can write to the database edits records by hand, past every check of ADE."""

from collections.abc import Callable
from typing import Any

import apsw
import msgspec
import pytest
import redis

from ade.approvals.delegations import DELEGATIONS
from ade.approvals.review_requests import review_of
from tests.attacks.site import PASSWORD, Site
from tests.attacks.test_a_task_without_an_author import program
from tests.attacks.test_an_admins_token import signed_in
from tests.domain import Delegation, User, add_user

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
Edit = Callable[[dict[str, Any]], object]


class Database:
    """What the owner of the database sees: rows of the SQLite file, or keys of the Redis server."""

    def __init__(self, url: str) -> None:
        self._file = url.removeprefix("sqlite:///") if url.startswith("sqlite") else None
        self._url = url

    def task(self, task_id: str, edit: Edit) -> None:
        """Edit the arguments, options, approvals, and votes of a task."""
        self._edit_task(task_id, "detail", edit)

    def outcome(self, task_id: str, edit: Edit) -> None:
        self._edit_task(task_id, "outcome", edit)

    def document(self, kind: str, document_id: str, edit: Edit) -> None:
        if self._file is not None:
            where = f"kind = '{kind}' AND id = '{document_id}'"
            self._edit_row("document", "body", where, edit)
            return
        server = redis.Redis.from_url(self._url)
        [key] = list(server.scan_iter(f"*documents:{kind}"))
        stored = server.hget(key, document_id)
        assert isinstance(stored, bytes)
        version, expires_at, body = msgspec.msgpack.decode(stored)
        packed = msgspec.msgpack.encode([version, expires_at, _edited(body, edit)])
        server.hset(key, document_id, packed)
        server.close()

    def _edit_task(self, task_id: str, part: str, edit: Edit) -> None:
        if self._file is not None:
            self._edit_row(f"task_{part}", part, f"seq = (SELECT seq FROM task WHERE id = '{task_id}')", edit)
            return
        server = redis.Redis.from_url(self._url)
        [key] = list(server.scan_iter(f"*task:{task_id}"))
        server.hset(key, part, _edited(server.hget(key, part), edit))
        server.close()

    def _edit_row(self, table: str, column: str, where: str, edit: Edit) -> None:
        assert self._file is not None
        # By the library of the store: another copy of SQLite in this process would not see its locks, and on closing
        # it would remove the write-ahead log and the shared memory that the store still uses.
        file = apsw.Connection(self._file)
        file.set_busy_timeout(10_000)
        file.execute("BEGIN IMMEDIATE")
        [(text,)] = file.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchall()
        file.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (_edited(text, edit),))
        file.execute("COMMIT")
        file.close()


def _edited(text: Any, edit: Edit) -> str:
    document = msgspec.json.decode(text)
    edit(document)
    return msgspec.json.encode(document).decode()


@pytest.fixture
def database(site: Site) -> Database:
    return Database(site.server.app.settings.store.url)


async def _verify(site: Site) -> list[str]:
    report = (await site.ask("olga", "POST", "/audit/verify", {})).json()
    assert report["holds"] is not bool(report.get("differences")), report
    return list(report.get("differences", ()))


async def _reviewed(site: Site) -> str:
    task_id: str = (await site.enqueue("pay", args={"to": "landlord"}))["id"]
    return task_id


async def _paid(site: Site) -> str:
    task_id = await _reviewed(site)
    await site.vote("rita", task_id)
    await site.until(task_id, "completed")
    return task_id


async def _do(site: Site, by: str, method: str, path: str, body: object = None) -> None:
    tag = (await site.ask("olga", "GET", path.rpartition("/")[0])).headers.get("etag", "*")
    if method == "PATCH":
        tag = (await site.ask("olga", "GET", path)).headers["etag"]
    answer = await site.server.ask(method, f"/api/v1{path}", body, by=by, if_match=tag)
    assert answer.status < 300, answer


async def test_nothing_differs_while_no_one_edits(site: Site) -> None:
    """Tasks that wait, ran, were sent back and edited, failed and retried, revoked, bypassed, or previewed."""
    await site.rules(guard=GUARD, policy=POLICY)
    await _reviewed(site)
    await _paid(site)
    edited = await _reviewed(site)
    await site.vote("rita", edited, "request_changes", reason="too much")
    await _do(site, "bot", "PATCH", f"/tasks/{edited}", {"args": {"to": "landlord", "amount": 2}})
    await _do(site, "bot", "POST", f"/tasks/{edited}/submit")
    failed = (await site.enqueue("pay", args={"to": "x", "fails": True}, max_attempts=1))["id"]
    await site.vote("rob", failed)
    await site.until(failed, "failed")
    await _do(site, "olga", "POST", f"/tasks/{failed}/retry", {})
    revoked = (await site.enqueue("pay", args={"to": "landlord"}, start="by_hand"))["id"]
    await site.vote("rita", revoked)
    await _do(site, "rita", "POST", f"/approvals/{revoked}/revoke", {"reason": "wait"})
    glass = await _reviewed(site)
    await _do(site, "ada", "POST", f"/approvals/{glass}/break-glass", {"reason": "now", "password": PASSWORD})
    await site.until(glass, "completed")
    deployed = (await site.enqueue("deploy", args={"service": "web"}))["id"]
    await site.until(deployed, "reviewing")
    await site.vote("rosa", deployed)
    await site.until(deployed, "completed")
    assert await _verify(site) == []


async def test_edited_arguments_are_reported(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    waiting, paid = await _reviewed(site), await _paid(site)
    for task_id in (waiting, paid):
        database.task(task_id, lambda task: task["args"].update(to="mallory"))
    assert await _verify(site) == [
        f"task {task_id}: its arguments or options are not those of approval {task_id}.1: they were edited"
        for task_id in (waiting, paid)
    ]


async def test_a_vote_that_no_one_gave_is_reported(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _reviewed(site)

    def vote(task: dict[str, Any]) -> None:
        gate = task["review"]["gates"][0]
        cast = {"seq": 1, "voter": "rosa", "decision": "approve", "digest": gate["digest"], "at": gate["opened_at"]}
        gate["votes"] = [{**cast, "roles": ["reviewer"]}]
        gate["state"], gate["decided_at"] = "approved", gate["opened_at"]

    database.task(task_id, vote)
    forged, unmet = await _verify(site)
    assert forged == f"task {task_id}: approval {task_id}.1 has a vote by rosa (approve) that is not in the log"
    assert unmet.startswith(f"task {task_id}: approval {task_id}.1 is approved in the record, and not by the log")


async def test_so_is_a_vote_that_was_removed(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=[{**POLICY[0], "rules": [{"needed": 2, "roles": ["reviewer"]}]}])
    task_id = await _reviewed(site)
    await site.vote("rita", task_id)
    database.task(task_id, lambda task: task["review"]["gates"][0].pop("votes"))
    assert await _verify(site) == [
        f"task {task_id}: approval {task_id}.1 lacks a vote by rita (approve) that is in the log"
    ]


async def test_an_easier_policy_in_a_gate_is_reported(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=[{**POLICY[0], "rules": [{"needed": 2, "roles": ["reviewer"]}]}])
    task_id = await _reviewed(site)
    database.task(task_id, lambda task: task["review"]["gates"][0]["policy"]["rules"][0].update(needed=1))
    assert await _verify(site) == [f"task {task_id}: approval {task_id}.1 is not what was requested (policy)"]


async def test_approvals_that_were_removed_are_reported(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _reviewed(site)
    database.task(task_id, lambda task: task.pop("review"))
    assert f"task {task_id}: approval {task_id}.1 is in the log, and missing in the record" in await _verify(site)


async def test_the_review_of_a_bypass_that_was_removed_is_reported(site: Site, database: Database) -> None:
    """With its gate, the owner of the database removes the rejection in it."""
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _reviewed(site)
    await _do(site, "ada", "POST", f"/approvals/{task_id}/break-glass", {"reason": "now", "password": PASSWORD})
    await site.until(task_id, "completed")
    after = next(gate for gate in review_of(await site.task(task_id)).gates if gate.step)
    rejection = {"decision": "reject", "digest": after.digest, "approval": after.id, "reason": "never"}
    assert (await site.ask("rita", "POST", f"/approvals/{task_id}/respond", rejection)).status == 200
    assert await _verify(site) == []
    database.task(task_id, lambda task: task["review"]["gates"].pop(0))
    assert await _verify(site) == [f"task {task_id}: approval {after.id} is in the log, and missing in the record"]


async def test_so_is_the_review_of_a_step(site: Site, database: Database) -> None:
    task_id = (await site.enqueue("drop", args={"table": "people"}))["id"]
    await site.until(task_id, "reviewing")
    assert (await site.vote("rita", task_id, "respond", text="never drop it")).status == 200
    await site.until(task_id, "completed")
    assert await _verify(site) == []
    database.task(task_id, lambda task: task["review"].update(gates=[]))
    assert await _verify(site) == [f"task {task_id}: approval {task_id}.1 is in the log, and missing in the record"]


async def test_an_unknown_author_who_was_removed_from_a_gate_is_reported(site: Site, database: Database) -> None:
    """The gate is blocked until the author has an account. Without that author, other people could approve it."""
    await site.rules(guard=GUARD, policy=POLICY, authors={"missing": "block"})
    async with program(site, "ghost") as app:
        task_id = (await app.enqueue("pay", {"to": "mallory"}, max_attempts=1)).id
    assert await _verify(site) == []

    def forget(task: dict[str, Any]) -> None:
        gate = task["review"]["gates"][-1]
        assert gate.pop("unverified") == ["ghost"]
        gate["state"] = "open"

    database.task(task_id, forget)
    assert await _verify(site) == [f"task {task_id}: approval {task_id}.1 is not what was requested (unverified)"]
    assert (await site.vote("rob", task_id)).status == 200
    await site.until(task_id, "completed")
    report = (await site.ask("olga", "POST", "/audit/verify", {})).json()
    assert f"task {task_id} was queued under approval {task_id}.1, which was not met" in report["broken"]


async def test_an_unknown_author_who_gets_an_account_is_no_difference(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY, authors={"missing": "block"})
    async with program(site, "ghost") as app:
        task_id = (await app.enqueue("pay", {"to": "landlord"}, max_attempts=1)).id
    await add_user(site.stores, User(id="ghost"), password=PASSWORD)
    assert (await site.vote("rob", task_id)).status == 200
    await site.until(task_id, "completed")
    assert await _verify(site) == []


async def test_another_result_is_reported(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _paid(site)
    database.outcome(task_id, lambda outcome: outcome.update(result="never happened"))
    assert await _verify(site) == [f"task {task_id}: its result is not the one that its run returned"]


async def test_a_role_that_no_one_granted_is_reported(site: Site, database: Database) -> None:
    database.document("user", "mallory", lambda user: user.update(roles=["admin", "reviewer"]))
    database.document("user", "rita", lambda user: user.update(password="hash of a known one"))
    assert await _verify(site) == [
        "account mallory has the roles admin, reviewer; by the log operator, reviewer",
        "account rita is not as it was written: its password, owner, or name was edited",
    ]


async def test_an_edited_rulebook_is_reported(site: Site, database: Database) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    database.document("rulebook", "current", lambda newest: newest["rules"].update(guard=[]))
    assert await _verify(site) == ["the rulebook in force is not what was applied: its rules were edited"]


RITAS = [{"id": "one", "rules": [{"needed": 1, "users": ["rita"]}]}]


async def _lent(site: Site, by: str, to: str, **fields: object) -> str:
    browser = await signed_in(site, by)
    answer = await browser.ask("POST", "/delegations", {"delegate": to, "ends": 3_600, **fields})
    assert answer.status == 201, answer
    return str(answer.json()["id"])


async def test_a_vote_through_a_delegation_that_no_one_created_is_reported(site: Site, database: Database) -> None:
    """The owner of the database lets rob vote for rita for a moment, and then hides it."""
    await site.rules(guard=GUARD, policy=RITAS)
    lent = await _lent(site, "rosa", "rob")
    task_id = await _reviewed(site)
    database.document("delegation", lent, lambda delegation: delegation.update(delegator="rita"))
    assert await _verify(site) == [f"delegation {lent} from rita to rob is not what was created: it was edited"]
    assert (await site.vote("rob", task_id, for_whom="rita")).status == 200
    await site.until(task_id, "completed")
    database.document("delegation", lent, lambda delegation: delegation.update(delegator="rosa"))
    assert await _verify(site) == [
        f"task {task_id}: approval {task_id}.1: the vote by rob for rita is not valid: a delegation from rita to rob"
        " was needed, and it is not in the log"
    ]
    report = (await site.ask("olga", "POST", "/audit/verify", {})).json()
    assert f"task {task_id} was queued under approval {task_id}.1, which was not met" in report["broken"]


async def test_so_is_one_through_a_delegation_for_something_else(site: Site, database: Database) -> None:
    two = [{"id": "one", "rules": [{"needed": 1, "users": ["rita"]}, {"needed": 1, "users": ["rosa"]}]}]
    await site.rules(guard=GUARD, policy=two)
    lent = await _lent(site, "rita", "rob", names=["deploy"])
    task_id = await _reviewed(site)
    database.document("delegation", lent, lambda delegation: delegation.update(names=["pay"]))
    await site.vote("rob", task_id, "reject", for_whom="rita")
    assert await _verify(site) == [
        f"delegation {lent} from rita to rob is not what was created: it was edited",
        f"task {task_id}: approval {task_id}.1: the vote by rob for rita is not valid: a delegation from rita to rob"
        " was needed, and it does not cover this task",
    ]


async def test_a_delegation_that_was_revived_or_copied_is_reported(site: Site, database: Database) -> None:
    lent = await _lent(site, "rita", "rob")
    await _do(site, "rita", "DELETE", f"/delegations/{lent}")
    assert await _verify(site) == []
    database.document("delegation", lent, lambda delegation: delegation.update(is_revoked=False))
    assert await _verify(site) == [f"delegation {lent} from rita to rob is not revoked, and not so by the log"]
    copied = DELEGATIONS.put("copy", await _stored_delegation(site, lent), seen=0)
    await site.stores.documents.write([copied])
    assert "delegation copy from rita to rob is in the store, and was never created by the log" in await _verify(site)


async def _stored_delegation(site: Site, delegation_id: str) -> Delegation:
    stored = await DELEGATIONS.get(site.stores, delegation_id)
    assert stored is not None
    return stored.record


async def test_honest_delegations_are_no_difference(site: Site) -> None:
    """Through one, through two, for one approval alone; two of them are revoked later."""
    await site.rules(guard=GUARD, policy=RITAS)
    lent = await _lent(site, "rita", "rob", names=["p*"], cascades=True)
    passed_on = await _lent(site, "rob", "rosa")
    for voter in ("rob", "rosa"):
        task_id = await _reviewed(site)
        assert (await site.vote(voter, task_id, for_whom="rita")).status == 200
        await site.until(task_id, "completed")
    await _do(site, "rita", "DELETE", f"/delegations/{lent}")
    await _do(site, "rob", "DELETE", f"/delegations/{passed_on}")
    task_id = await _reviewed(site)
    rita = await signed_in(site, "rita")
    alone = await rita.ask("POST", f"/approvals/{task_id}/delegate", {"to": "rosa"})
    assert alone.status < 300, alone
    await site.vote("rosa", task_id)
    await site.until(task_id, "completed")
    assert review_of(await site.task(task_id)).gates[0].votes[0].chain == ("rita", "rosa")
    assert await _verify(site) == []


async def test_what_retention_removed_is_no_difference(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _paid(site)
    await site.stores.sweeps.prune([task_id])
    [gone] = await site.stores.tasks.get([task_id])
    assert gone is None
    assert await _verify(site) == []


async def test_the_log_says_which_digest_ran(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _paid(site)
    digest = (await site.task(task_id)).digest
    plain = (await site.enqueue("parent", args={"to": "x"}))["id"]
    await site.until(plain, "completed")
    for each, expected in ((task_id, digest), (plain, None)):
        page = (await site.ask("olga", "GET", f"/tasks/{each}/events?limit=100")).json()
        ran = {event["type"]: event["payload"] for event in page["items"]}
        assert [ran[kind].get("digest") for kind in ("task.claimed", "task.succeeded")] == [expected, expected]
    assert digest is not None


async def test_what_a_step_is_about_cannot_be_replaced_for_its_reviewers(site: Site, database: Database) -> None:
    """The reviewer would see a harmless step, and approve the digest of the harmful one."""
    task = await site.enqueue("wipe", args={"disk": "production"})
    await site.until(task["id"], "reviewing")
    assert await _verify(site) == []

    database.task(task["id"], lambda record: record["review"]["gates"][-1].update(about={"disk": "scratch"}))

    refused = await site.vote("rita", task["id"])
    assert (refused.status, refused.code) == (409, "digest_mismatch")
    assert "was edited without ADE" in refused.json()["detail"]
    assert any("what approval" in line for line in await _verify(site))
    assert site.done == []
