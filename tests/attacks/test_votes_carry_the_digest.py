"""Attack: the task changes between the look and the vote. A vote counts only for the gate and the digest it names."""

import asyncio
import os
import sys
from typing import Any

import pytest

from ade import DigestMismatch, GateClosed
from tests.attacks.site import PASSWORD, Site
from tests.server.conftest import Answer

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]


async def shown(site: Site, task_id: str) -> dict[str, Any]:
    """The gate that a reviewer looks at."""
    gate: dict[str, Any] = (await site.ask("rita", "GET", f"/approvals/{task_id}")).json()["review"]["gates"][-1]
    return gate


async def amend(site: Site, task_id: str, **args: object) -> Answer:
    gate = await shown(site, task_id)
    body = {"approval": gate["id"], "digest": gate["digest"], "args": args}
    return await site.ask("rosa", "POST", f"/approvals/{task_id}/amend", body)


async def respond(site: Site, task_id: str, **fields: object) -> Answer:
    return await site.ask("rita", "POST", f"/approvals/{task_id}/respond", {"decision": "approve", **fields})


async def test_a_vote_without_the_whole_digest_or_the_gate_is_invalid(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "rent"})
    gate = await shown(site, task["id"])
    digest, approval = gate["digest"], gate["id"]
    for fields in (
        {"approval": approval, "digest": digest[:8]},
        {"approval": approval, "digest": digest[:63]},
        {"approval": approval, "digest": digest.upper()},
        {"approval": approval},
        {"digest": digest},
        {"approval": "", "digest": digest},
        {"approval": None, "digest": digest},
    ):
        refused = await respond(site, task["id"], **fields)
        assert (refused.status, "GET /approvals/{task_id}" in str(refused.json())) == (422, True), fields
        item = {"task_id": task["id"], **fields}
        batch = await site.ask("rita", "POST", "/approvals/batch", {"decision": "approve", "items": [item]})
        amended = await site.ask("rita", "POST", f"/approvals/{task['id']}/amend", {"args": {"to": "x"}, **fields})
        assert (batch.status, amended.status) == (422, 422), fields
    assert (await site.status(task["id"]), (await shown(site, task["id"]))["votes"]) == ("reviewing", [])
    await respond(site, task["id"], approval=approval, digest=digest)
    await site.until(task["id"], "completed")


async def test_a_vote_on_what_was_amended_since_does_not_count(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "rent"})
    seen = await shown(site, task["id"])
    assert (await amend(site, task["id"], to="mallory")).status == 200
    now = await shown(site, task["id"])

    stale = await respond(site, task["id"], approval=seen["id"], digest=seen["digest"])
    mixed = await respond(site, task["id"], approval=now["id"], digest=seen["digest"])
    other = await respond(site, task["id"], approval=seen["id"], digest=now["digest"])
    assert [(each.status, each.code) for each in (stale, mixed, other)] == [
        (409, "gate_closed"),
        (409, "digest_mismatch"),
        (409, "gate_closed"),
    ]
    assert (await site.status(task["id"]), site.done) == ("reviewing", [])


async def test_the_command_votes_on_what_it_displayed(site: Site) -> None:
    """The task is amended while the command waits for the password."""
    await site.rules(guard=GUARD, policy=POLICY, criticality={"db:*": 100})
    task = await site.enqueue("pay", args={"to": "rent"}, resources=[f"db:{number}" for number in range(10)])
    seen = await shown(site, task["id"])
    assert seen["level"] in ("high", "critical")

    async with asyncio.timeout(60):
        command = await _command(site, "approvals", "approve", task["id"], "--digest", seen["digest"][:12])
        assert command.stdin is not None
        assert command.stderr is not None
        displayed = [(await command.stderr.readline()).decode() for _ in range(2)]
        assert displayed[1] == f"approval {seen['id']}, digest {seen['digest']}\n"
        assert (await amend(site, task["id"], to="mallory")).status == 200
        _, error = await command.communicate(f"{PASSWORD}\n".encode())
    assert (command.returncode, b"gate_closed" in error) == (4, True), error
    now = await shown(site, task["id"])
    assert (now["id"] != seen["id"], now["votes"], site.done) == (True, [], [])


async def _command(site: Site, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ade.cli", *words, "--url", site.server.url, "--password-stdin"),
        env={**os.environ, "ADE_TOKEN": site.server.tokens["rita"]},
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )


async def test_python_votes_name_the_gate_too(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "rent"})
    seen = await shown(site, task["id"])
    await amend(site, task["id"], to="the landlord")
    handle, now = site.server.app.handle(task["id"]), await shown(site, task["id"])
    stale = (seen["id"], seen["digest"]), (now["id"], seen["digest"]), (now["id"], now["digest"][:12])
    for approval, digest in stale:
        with pytest.raises((GateClosed, DigestMismatch)):
            await handle.vote("approve", by="rita", approval=approval, digest=digest)
    await handle.vote("approve", by="rita", approval=now["id"], digest=now["digest"])
    await site.until(task["id"], "completed")
    assert site.done == [{"pay": "the landlord", "amount": 1}]
