"""Attack: a response, which one reviewer gives, is taken for the approval that the policy requires from several."""

from typing import Any

from tests.attacks.site import PASSWORD, Site

STEPS = [{"id": "two", "names": ["wipe", "drop"], "rules": [{"needed": 2, "roles": ["reviewer"]}]}]


async def held(site: Site, name: str, **args: str) -> str:
    await site.rules(policy=STEPS)
    task = await site.enqueue(name, args=args)
    await site.until(task["id"], "reviewing")
    return str(task["id"])


async def gate(site: Site, task_id: str) -> dict[str, Any]:
    shown = (await site.ask("rita", "GET", f"/approvals/{task_id}")).json()
    found: dict[str, Any] = shown["review"]["gates"][-1]
    return found


async def test_a_response_does_not_carry_a_handler_past_its_step(site: Site) -> None:
    task_id = await held(site, "wipe", disk="a")
    assert (await site.vote("rita", task_id, "respond", text="go ahead")).status == 200

    ended = await site.until(task_id, "failed", "completed")
    assert (str(ended.status), site.done) == ("failed", [])
    assert ended.error is not None
    assert ended.error.message == "rita did not approve: wipe the disk. Response: go ahead"


async def test_a_handler_that_reads_responses_knows_that_nothing_was_approved(site: Site) -> None:
    words, no = await held(site, "drop", table="a"), await held(site, "drop", table="b")
    await site.vote("rita", words, "respond", text="go ahead")
    await site.vote("rita", no, "reject", go_on=True, reason="go on")
    for task_id in (words, no):
        await site.until(task_id, "completed")
    assert site.done == []


async def test_one_reviewer_cannot_edit_and_approve(site: Site) -> None:
    task_id = await held(site, "drop", table="a")
    await site.vote("rob", task_id)  # one of two, for table a
    assert (await site.vote("rita", task_id, "respond", args={"table": "everything"})).status == 200
    own = await site.vote("rita", task_id)
    assert (own.status, own.json()["code"]) == (403, "conflict_of_interest")
    await site.vote("rob", task_id)
    assert (await site.status(task_id), site.done) == ("reviewing", [])

    await site.vote("rosa", task_id)
    await site.until(task_id, "completed")
    assert site.done == [{"drop": "everything"}]


async def test_an_approval_of_the_first_arguments_does_not_count_for_the_edited_ones(site: Site) -> None:
    task_id = await held(site, "drop", table="a")
    seen = await gate(site, task_id)
    await site.vote("rita", task_id, "respond", args={"table": "everything"})
    edited = await gate(site, task_id)
    assert edited["about"] == {"table": "everything"}
    body = {"decision": "approve", "approval": seen["id"], "digest": seen["digest"], "password": PASSWORD}
    for approval in (seen["id"], edited["id"]):
        late = await site.ask("rob", "POST", f"/approvals/{task_id}/respond", {**body, "approval": approval})
        assert late.status == 409, late
    assert (await gate(site, task_id))["votes"] == []


async def test_the_author_and_programs_respond_to_nothing(site: Site) -> None:
    task_id = await held(site, "drop", table="a")
    for stranger in ("mallory", "bot", "machine", "olga"):
        for fields in ({"text": "go ahead"}, {"args": {"table": "b"}}):
            refused = await site.vote(stranger, task_id, "respond", **fields)
            assert refused.status in (403, 404), refused
    assert (await site.status(task_id), (await gate(site, task_id))["votes"]) == ("reviewing", [])


async def test_a_task_that_never_ran_cannot_be_let_go_with_a_response(site: Site) -> None:
    await site.rules(guard=[{"do": "demand", "name": "pay", "reason": "money"}])
    task = await site.enqueue("pay", args={"to": "mallory"})
    for decision, fields in (("respond", {"text": "go ahead"}), ("reject", {"go_on": True})):
        refused = await site.vote("rita", task["id"], decision, **fields)
        assert (refused.status, refused.json()["code"]) == (422, "invalid_task"), refused
    assert (await site.status(task["id"]), site.done) == ("reviewing", [])
