"""The same attacks from a shell and from Python: mallory works on the store itself, under her own account."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ade import Ade
from ade.approvals.errors import AuthorRequired, NotEligible
from ade.settings import load
from tests.attacks.site import PASSWORD, Site, bank
from tests.cli.processes import call

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [
    {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]},
    {"id": "self", "rules": [{"needed": 1, "roles": ["reviewer"]}], "authors_may_vote": True},
    {"id": "nobody", "rules": [{"needed": 1, "roles": ["reviewer"]}], "auto_approve": "medium"},
]


class Shell:
    """`ade` as a process of its own, on the store of the site."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site, self._folder = site, folder

    async def run(self, user: str, *arguments: str, stdin: str = "") -> tuple[int, Any]:
        url = self._site.server.app.settings.store.url
        flags = ("--store", url, "--allow-volatile", "--json")
        done = await asyncio.to_thread(call, self._folder, *arguments, *flags, stdin=stdin, ADE_USER=user)
        return done.returncode, msgspec.json.decode(done.stdout or done.stderr)

    async def vote(self, voter: str, task_id: str) -> int:
        _, shown = await self.run(voter, "approvals", "show", task_id)
        digest = shown["review"]["gates"][-1]["digest"]
        arguments = ("approvals", "approve", task_id, "--digest", digest, "--password-stdin")
        code, _ = await self.run(voter, *arguments, stdin=f"{PASSWORD}\n")
        return code


@pytest.fixture
def shell(site: Site, tmp_path: Path) -> Shell:
    return Shell(site, tmp_path)


@pytest.mark.parametrize("policy", ["self", "nobody"])
async def test_a_shell_cannot_choose_a_weaker_policy(site: Site, shell: Shell, policy: str) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    code, task = await shell.run("mallory", "enqueue", "pay", "to=mallory", "--approval", policy)
    assert (code, task["status"]) == (0, "reviewing")
    assert await shell.vote("mallory", task["id"]) != 0
    assert (await site.status(task["id"]), site.done) == ("reviewing", [])
    assert await shell.vote("rita", task["id"]) == 0
    await site.until(task["id"], "completed")


async def test_a_shell_cannot_replay_with_other_arguments_and_approve_that(site: Site, shell: Shell) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "landlord", "fails": True}, by="olga", max_attempts=1)
    await site.vote("rita", task["id"])
    await site.until(task["id"], "failed")
    code, _ = await shell.run("mallory", "dlq", "replay", task["id"], "--args", '{"to": "mallory"}')
    assert code == 0
    assert await shell.vote("mallory", task["id"]) != 0, "an account that edits it cannot approve it"
    assert (await site.status(task["id"]), site.done) == ("reviewing", [{"pay": "landlord", "amount": 1}])


async def test_a_shell_cannot_roll_back_what_never_ran(site: Site, shell: Shell) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "landlord", "fails": True}, by="mallory", max_attempts=1)
    await site.vote("rita", task["id"])
    await site.until(task["id"], "failed")
    await shell.run("mallory", "dlq", "replay", task["id"], "--args", '{"to": "mallory", "amount": 1000}')
    await shell.run("mallory", "cancel", task["id"])
    code, undone = await shell.run("mallory", "approvals", "roll-back", task["id"])
    assert code == 0, undone
    await site.until(undone["id"], "completed")
    assert site.done[-1] == {"refund": "landlord", "amount": 1}


@pytest.mark.parametrize("policy", ["self", "nobody"])
async def test_python_cannot_choose_a_weaker_policy(site: Site, policy: str) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    async with _program(site) as app:
        handle = await app.enqueue("pay", {"to": "mallory"}, approval=[policy], author="mallory")
        review = (await handle.get()).review
        assert review is not None
        gate = review.gates[-1]
        with pytest.raises(NotEligible):
            await handle.vote("approve", by="mallory", digest=gate.digest, approval=gate.id)
        assert (await site.status(handle.id), site.done) == ("reviewing", [])
        await handle.vote("approve", by="rita", digest=gate.digest, approval=gate.id)
        await site.until(handle.id, "completed")


async def test_python_cannot_write_in_the_name_of_no_one(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    async with _program(site) as app:
        with pytest.raises(AuthorRequired):
            await app.enqueue("pay", {"to": "mallory"})
        with pytest.raises(AuthorRequired):
            await app.enqueue("pay", {"to": "mallory"}, author="mallory2")
    assert (await site.ask("olga", "GET", "/tasks?name=pay")).json()["items"] == []


def _program(site: Site) -> Ade:
    """Another program on the same store."""
    chosen = {"store.url": site.server.app.settings.store.url, "redis.allow_volatile": True}
    return bank([], load(flags=chosen, files=[]).settings)
