"""HTTP operations that change a stored task: edit, submit, cancel, reschedule, retry, start, and roll back."""

from msgspec import structs

from ade.accounts.model import Permission
from ade.approvals.rollback import roll_back
from ade.approvals.service import start
from ade.approvals.submission import submit
from ade.errors import IllegalTransition, InvalidTask
from ade.locks.model import read_priority
from ade.server.context import RequestContext, Services, writer
from ade.server.operation import ETagUse, operation
from ade.server.request_types import Nothing
from ade.tasks import service as tasks_service
from ade.tasks.api.requests import Cancel, EditTask, RescheduleTask, RetryTask
from ade.tasks.api.tasks import checked_args, owned_task, replayed, version_check
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task


@operation("PATCH /tasks/{task_id}", permission=Permission.ENQUEUE, others=Permission.OPERATE, tag=ETagUse.REQUIRED)
async def edit_task(services: Services, request: RequestContext, task_id: str, body: EditTask) -> Task:
    """Edit a draft. An account that edits a task cannot approve it."""
    task = await owned_task(services, request, task_id)
    if task.status is not Status.DRAFT:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a draft can be edited")
    said = {name: value for name, value in structs.asdict(body).items() if value is not None}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    if body.priority is not None:
        fields["priority"] = read_priority(body.priority)
    if body.args is not None:
        fields["args"] = await checked_args(services, task, body.args)
    if not fields:
        raise InvalidTask("name what to change: args, description, priority, tags, or resources")
    return await tasks_service.edit(
        services.stores,
        services.payloads,
        task_id,
        actor=writer(request),
        check=version_check(request),
        **fields,
    )


@operation("POST /tasks/{task_id}/submit", permission=Permission.ENQUEUE, others=Permission.OPERATE)
async def submit_task(services: Services, request: RequestContext, task_id: str, body: Nothing) -> Task:
    """Put a draft before people. It is frozen and assessed. A task that is previewed first stays submitted until the
    preview is done."""
    await owned_task(services, request, task_id)
    return await submit(services.stores, services.payloads, task_id, actor=writer(request))


@operation("POST /tasks/{task_id}/cancel", permission=Permission.ENQUEUE, others=Permission.OPERATE, tag=ETagUse.HEEDED)
async def cancel_task(services: Services, request: RequestContext, task_id: str, body: Cancel) -> Task:
    """Stop a task."""
    await owned_task(services, request, task_id)
    check = version_check(request)
    return await tasks_service.cancel(services.stores, task_id, body.reason, actor=request.actor, check=check)


@operation(
    "POST /tasks/{task_id}/reschedule", permission=Permission.ENQUEUE, others=Permission.OPERATE, tag=ETagUse.HEEDED
)
async def reschedule_task(services: Services, request: RequestContext, task_id: str, body: RescheduleTask) -> Task:
    """Change the priority or the start time of a pending task. With a delay of 0, it starts as soon as a worker is
    free. Approvals stay valid, because they cover neither."""
    await owned_task(services, request, task_id)
    return await tasks_service.reschedule(
        services.stores,
        task_id,
        priority=body.priority,
        delay=body.delay,
        run_at=body.run_at,
        actor=writer(request),
        check=version_check(request),
    )


@operation("POST /tasks/{task_id}/retry", permission=Permission.ENQUEUE, others=Permission.OPERATE, tag=ETagUse.HEEDED)
async def retry_task(services: Services, request: RequestContext, task_id: str, body: RetryTask) -> Task:
    """Run a failed task again. It runs as a new generation with fresh attempts, even if it was discarded."""
    task = await owned_task(services, request, task_id)
    return await replayed(services, request, task, body.args)


@operation("POST /tasks/{task_id}/apply", permission=Permission.ENQUEUE, others=Permission.OPERATE, tag=ETagUse.HEEDED)
async def apply_task(services: Services, request: RequestContext, task_id: str, body: Nothing) -> Task:
    """Start an approved task. An approved task that waits for a manual start joins its queue, if its approval is still
    valid."""
    await owned_task(services, request, task_id)
    return await start(services.stores, task_id, actor=writer(request), check=version_check(request))


@operation("POST /tasks/{task_id}/rollback", permission=Permission.ENQUEUE, others=Permission.OPERATE)
async def roll_back_task(services: Services, request: RequestContext, task_id: str, body: Nothing) -> Task:
    """Undo a completed task. Returns the task that undoes it: the same one, however often this is called."""
    await owned_task(services, request, task_id)
    return await roll_back(services.stores, services.payloads, task_id, actor=writer(request))
