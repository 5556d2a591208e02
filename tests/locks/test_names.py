"""Names of locks: those that look the same are the same, whichever way they come in."""

from pathlib import Path

import pytest

from ade import Ade, Context
from ade.errors import InvalidLock
from ade.locks.model import LockSpec, lock_specs_of, merged, write
from ade.locks.views import view_locks
from ade.tasks.model import Task
from tests.domain import LockMode, Stores, admit, validate_request

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_both_spellings_of_a_name_are_one_resource() -> None:
    assert merged([write(COMPOSED), write(DECOMPOSED)]) == (write(COMPOSED),)
    assert lock_specs_of([DECOMPOSED, LockSpec(DECOMPOSED, LockMode.SHARED)])[0].resource == COMPOSED


@pytest.mark.parametrize("name", [" repo", "repo ", "\trepo", "repo\u2003", " "])
def test_a_blank_at_either_end_is_rejected_and_said(name: str) -> None:
    for attempt in (
        lambda: lock_specs_of([name]),
        lambda: merged([write(name)]),
        lambda: admit(Task(id="t", name="send", locks=(write(name),)), now=0),
        lambda: validate_request(id="x", owner=name, scope="s", wanted=[("repo", LockMode.EXCLUSIVE)]),
    ):
        with pytest.raises(InvalidLock, match="blank"):
            attempt()


async def test_a_run_finds_its_token_by_either_spelling_and_others_find_the_lock(tmp_path: Path) -> None:
    app = Ade("memory://")

    @app.task
    async def edit(ctx: Context) -> bool:
        async with ctx.lock(DECOMPOSED) as lock:
            return ctx.token(COMPOSED) == lock.token(DECOMPOSED) > 0

    async with app, app.worker():
        assert await (await edit.enqueue()).result(30)
        async with app.lock(DECOMPOSED) as held:
            assert held.token(COMPOSED) == held.token(DECOMPOSED)
            stores: Stores = (await app.open()).stores
            [seen] = await view_locks(stores, namespace="default", resource=COMPOSED)
            assert [one.token for one in seen.holders] == [held.token()]
