"""A draft is submitted, previewed on a worker, assessed, and put before people."""

from collections.abc import Sequence

from msgspec import Raw, structs

from ade.core.admission import PREVIEW_SUFFIX
from ade.core.approvals import deciding
from ade.core.approvals.opening import review_of
from ade.core.approvals.refusals import InvalidPolicy, InvalidSubject
from ade.core.approvals.subjects import read_preview
from ade.core.change import Change
from ade.core.errors import AdeError, StoreError
from ade.core.guard import Occasion, Verdict
from ade.core.lifecycle import Status
from ade.core.records import SYSTEM, Task
from ade.governance.approvals.guarding import demanding, ruled, tell_denied
from ade.governance.approvals.situation import demanded, load_situation
from ade.ports import Stores
from ade.queue.decisions import decide, get
from ade.queue.enqueue import enqueue
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads

_BEFORE_IT_RUNS = (Occasion.ENQUEUE, Occasion.RUN)
LARGEST_PREVIEW = 256 * 1024


async def follow_up(stores: Stores, payloads: Payloads, stored: Sequence[Task]) -> None:
    """After tasks were stored: those that came in to be previewed are. Should the caller die first, a sweep does it."""
    for task in stored:
        if task.status is Status.SUBMITTED:
            await carry_on(stores, payloads, task)


async def submit(stores: Stores, payloads: Payloads, task_id: str, *, actor: str | None = None) -> Task:
    """Freeze a draft and have it assessed; where its handler can preview it, once a worker has done so."""
    task = await get(stores, task_id)
    has_preview = review_of(task).has_preview or await previews(stores, task.name)
    submitted = await decide(
        stores,
        task_id,
        lambda task, now: deciding.submit(
            task, has_preview=has_preview, preview_id=fresh_id(now) if has_preview else None, now=now, actor=actor
        ),
    )
    return await carry_on(stores, payloads, submitted)


async def previews(stores: Stores, name: str) -> bool:
    """Whether some worker knows how to preview tasks of this name."""
    return any(known.has_preview for known in await stores.workers.definitions() if known.name == name)


async def carry_on(stores: Stores, payloads: Payloads, task: Task) -> Task:
    """Whatever is next for a submitted task: its preview, or, without one, its assessment. May be repeated."""
    return (await _carried_on(stores, payloads, task))[0]


async def _carried_on(stores: Stores, payloads: Payloads, task: Task) -> tuple[Task, bool]:
    """The task, and whether there was something to do."""
    review, after = review_of(task), task
    if task.status is not Status.SUBMITTED:
        return task, False
    if not review.has_preview:
        after = await assess(stores, payloads, task.id, None)
        return after, after.version != task.version
    assert review.preview_id is not None  # whoever sends a task to its preview names that
    [made] = await stores.tasks.get([review.preview_id])
    if made is None:
        await enqueue(stores, payloads, [await preview_task(payloads, task)])
        return task, True
    if made.is_final and made.status is not Status.COMPLETED:
        after = await send_back(stores, task.id, review.preview_id, _why_not(made))
    elif made.result is not None:  # by a worker that only hands in what it has done
        after = await assess(stores, payloads, task.id, await payloads.load(made.result), preview_id=made.id)
    return after, after.version != task.version


def _why_not(preview: Task) -> str:
    if preview.error is not None:
        return f"the preview failed: {preview.error.type}: {preview.error.message}"[:2_000]
    return f"the preview did not end well: it is {preview.status}"


async def preview_task(payloads: Payloads, task: Task) -> Task:
    """The task that finds out what a submitted task would do."""
    preview_id = review_of(task).preview_id
    assert preview_id is not None
    return Task(
        id=preview_id,
        name=f"{task.name}{PREVIEW_SUFFIX}",
        queue=task.queue,
        args=await payloads.load(task.args),
        priority=task.priority,
        timeout_ms=task.timeout_ms,
        parent_id=task.id,
        needs=task.needs,
        source=SYSTEM,
        author_id=task.author_id,
        idempotency_key=f"preview:{preview_id}",
        description=f"preview of {task.id}",
    )


async def send_back(stores: Stores, task_id: str, preview_id: str | None, *errors: str) -> Task:
    """To its author, with what is wrong. Nothing happens if it has gone on meanwhile."""

    def decision(task: Task, now: int) -> Change | None:
        if task.status is not Status.SUBMITTED or review_of(task).preview_id != preview_id:
            return None
        return deciding.send_back(task, errors, now=now)

    return await decide(stores, task_id, decision)


async def assess(
    stores: Stores, payloads: Payloads, task_id: str, preview: Raw | None, *, preview_id: str | None = None
) -> Task:
    """Score a submitted task and open its gate. Nothing happens if it has gone on meanwhile."""
    task = await get(stores, task_id)
    situation = await load_situation(stores)
    try:
        if preview is not None:
            _check_size(preview)
            if errors := read_preview(preview).errors:
                return await send_back(stores, task_id, preview_id, *errors)
        seen = structs.replace(task, preview=preview)
        rulings = [await ruled(stores, payloads, seen, situation, occasion) for occasion in _BEFORE_IT_RUNS]
        for ruling in rulings:
            if ruling.verdict is Verdict.DENY:
                await tell_denied(stores, task, ruling, Occasion.RUN)
                return await send_back(stores, task_id, preview_id, f"a guard rule forbids it: {ruling.reason}")
        review = demanding(task, rulings)
        demand = await demanded(stores, task, situation, preview=preview, named=review.policies, reason=review.reason)

        def decision(now_there: Task, now: int) -> Change | None:
            is_same = (review_of(now_there).preview_id, now_there.submitted_at) == (preview_id, task.submitted_at)
            if now_there.status is not Status.SUBMITTED or not is_same:
                return None
            return deciding.assess(now_there, preview, demand, situation.people, now=now)

        return await decide(stores, task_id, decision)
    except (InvalidSubject, InvalidPolicy) as error:
        return await send_back(stores, task_id, preview_id, error.detail)


def _check_size(preview: Raw) -> None:
    if len(preview) > LARGEST_PREVIEW:
        raise InvalidSubject(
            f"the preview has {len(preview):,} bytes, more than the {LARGEST_PREVIEW:,} that people can be shown; list"
            " fewer changes, or sum them up"
        )


async def previewed(stores: Stores, preview: Task, result: Raw, payloads: Payloads) -> None:
    """A preview has been made: the task it was made for is assessed."""
    [parent] = await stores.tasks.get([preview.parent_id or ""])
    if parent is not None:  # of two requests under one key the second has a preview, but no task
        await assess(stores, payloads, parent.id, await payloads.load(result), preview_id=preview.id)


async def tend_submitted(stores: Stores, payloads: Payloads, tasks: list[Task]) -> int:
    """What somebody who died left half-way. Answers how many went on."""
    moved = 0
    for task in tasks:
        try:
            moved += (await _carried_on(stores, payloads, task))[1]
        except StoreError:
            raise
        except AdeError as error:
            moved += (
                await send_back(stores, task.id, review_of(task).preview_id, error.detail)
            ).version != task.version
    return moved
