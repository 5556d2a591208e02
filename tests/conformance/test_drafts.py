"""Drafts and submissions: what is edited, and what is kept of a way to approval."""

from ade import Status
from ade.tasks.decisions import edit
from tests.conformance.scene import Scene, raw
from tests.domain import Verb, change


async def test_an_edited_draft_is_another_draft(scene: Scene) -> None:
    draft = await scene.add("send", queue="a", status=Status.DRAFT, concurrency_key="ann")
    edited = edit(
        draft,
        now=scene.clock.now() + 5,
        queue="b",
        name="build",
        args=raw('{"n":2}'),
        priority=1,
        description="better",
        concurrency_key="bob",
        parent_id=scene.task().id,
    )

    await scene.stores.tasks.commit(edited)

    assert await scene.get(draft.id) == edited.after
    [tally] = await scene.stores.queues.tallies()
    assert (tally.queue, tally.name, tally.count) == ("b", "build", 1)


async def test_an_approved_draft_starts_where_its_edits_put_it(scene: Scene) -> None:
    await scene.define("build", concurrency_per_key=1)
    await scene.start("build", concurrency_key="bob")
    draft = await scene.add("send", status=Status.DRAFT, queue="a")
    await scene.stores.tasks.commit(edit(draft, now=1, queue="b", name="build", concurrency_key="bob"))
    task = await scene.get(draft.id)
    for verb, target in ((Verb.SUBMIT, None), (Verb.ASSESS, Status.APPROVED), (Verb.START, None)):
        step = change(task, verb, now=scene.clock.now(), target=target)
        await scene.stores.tasks.commit(step)
        task = step.after

    assert await scene.claim(10) == []
    await scene.define("build")
    assert await scene.run(10, queues=("b",), names={"build"}) == [draft.id]


async def test_times_of_a_submission_are_kept(scene: Scene) -> None:
    draft = await scene.add(status=Status.DRAFT)
    submitted = change(draft, Verb.SUBMIT, now=7, submitted_at=7, digest="d", risk={"score": 3})
    await scene.stores.tasks.commit(submitted)
    approved = change(submitted.after, Verb.ASSESS, now=8, target=Status.APPROVED, approved_at=8)
    await scene.stores.tasks.commit(approved)

    assert await scene.get(draft.id) == approved.after
