"""Tasks are made: one, or many that may wait for each other."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw, structs

from ade.accounts.model import Permission
from ade.errors import AdeError, IllegalTransition, InvalidTask, ResultExpired, WaitTimeout
from ade.events.model import Event, is_of_access
from ade.server.idempotency import OF_OTHERS, own_task_key
from ade.server.operations import (
    RequestContext,
    Services,
    account_of,
    can_read_access_events,
    check_own,
    page,
    position,
)
from ade.server.pagination import Page
from ade.server.request_types import Nothing
from ade.server.routing import RouteAccess
from ade.stores.ports import TaskPage, TaskQuery
from ade.tasks import service as tasks_service
from ade.tasks.api.requests import (
    Cancel,
    CreatedTasks,
    EditTask,
    GetTask,
    ListLines,
    ListNames,
    ListTasks,
    NewTask,
    NewTasks,
    RetryTask,
    StoredTaskResult,
    TaskFilter,
    linked,
)
from ade.tasks.decisions import admit
from ade.tasks.definitions import arguments_by_name, checked_arguments
from ade.tasks.enqueue import Invocation, TaskPlan, make_tasks, template_of
from ade.tasks.identifiers import is_run, is_task_id, owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, MaybeRaw, OutputLine, Task
from ade.tasks.options import TaskOptions, make_plan
from ade.tasks.reasons import Explanation
from ade.tasks.service import get, result_of, unknown

_MOST_PLANS = 1_000
_CENTURY_MS = 100 * 365 * 86_400_000


async def create_task(office: Services, asked: RequestContext, body: NewTask) -> Task:
    """A task that asks for an idempotency key has its own; else that of the request, so that no repeat makes two."""
    [task] = await _stored(office, await _made(office, asked, [body]), [body])
    if asked.wait_s > 0:
        with suppress(WaitTimeout):
            return await office.watch().wait(task.id, asked.wait_s)
    return task


async def create_tasks(office: Services, asked: RequestContext, body: NewTasks) -> CreatedTasks:
    """All or none; the answer has them in their order. What is wrong is told with the place of the task."""
    made = await _made(office, asked, body.tasks, is_batch=True)
    stored, own = await _stored(office, made, body.tasks), {task.id for task in made}
    return CreatedTasks(items=stored, earlier=[task.id for task in stored if task.id not in own])


async def _made(
    office: Services, asked: RequestContext, forms: Sequence[NewTask], *, is_batch: bool = False
) -> list[Task]:
    """Checked, and not yet stored."""
    wanted = {form.name for form in forms if not form.allow_unknown}
    now, definitions = office.stores.clock.now(), await office.names(wanted)
    parents = await _parents(office, asked, forms)
    calls = [_call(office, asked, form, index, definitions, parents, is_batch) for index, form in enumerate(forms)]
    tasks = make_tasks(calls, now=now)
    for task in tasks:
        _check_near(task, now)
    if is_batch:
        tasks = linked(tasks, [(getattr(form, "ref", None), form.after or ()) for form in forms], now=now)
    return [
        structs.replace(task, status=Status.DRAFT) if form.draft else task
        for task, form in zip(tasks, forms, strict=True)
    ]


def _check_near(task: Task, now: int) -> None:
    """A time in a hundred years is a mistake, such as seconds that were given as milliseconds."""
    for name, moment in (("its time to run", task.run_after), ("its deadline", task.deadline or 0)):
        if moment > now + _CENTURY_MS:
            raise InvalidTask(f"{name} is more than a hundred years from now; check what it was made from")


async def _parents(office: Services, asked: RequestContext, forms: Sequence[NewTask]) -> Mapping[str, Task]:
    """Those that are named, which is seldom. Raises InvalidTask unless all are the caller's to name."""
    if asked.caller is None or all(form.parent is None for form in forms):
        return {}

    return await parents_of(office, asked, forms)


async def _stored(office: Services, tasks: Sequence[Task], forms: Sequence[NewTask]) -> list[Task]:
    """All or none; the answer has those that were asked for, in their order."""
    now = office.stores.clock.now()
    told = [each for task, form in zip(tasks, forms, strict=True) for each in _notification(task, form, now)]
    stored = await office.keep([*tasks, *told])
    return stored[: len(tasks)]


def _call(
    office: Services,
    asked: RequestContext,
    form: NewTask,
    index: int,
    definitions: Mapping[str, Definition],
    parents: Mapping[str, Task],
    is_batch: bool,
) -> Invocation[Any]:
    options: TaskOptions = form.options()  # type: ignore[assignment] # its fields are named after the options
    if is_batch:
        options.pop("after", None)  # they may name each other, and have no ids yet
    if asked.author is not None:
        options["author"] = asked.author
    if asked.trace is not None:
        options.setdefault("trace", asked.trace)
    if asked.key is not None and "key" not in options:
        options["key"] = asked.key if index == 0 else f"{asked.key}:{index}"
    elif form.key is not None and asked.caller is not None:
        options["key"] = key_for(asked, form.key, parents.get(form.parent or ""))
    try:
        definition, args = checked_arguments(definitions, form.name, form.args, allow_unknown=form.allow_unknown)
        return Invocation(_plan(office, definition, options), args)
    except AdeError as error:
        raise _placed(error, index) if is_batch else error from None


def _plan(office: Services, definition: Definition, options: TaskOptions) -> TaskPlan:
    """Most tasks say nothing but their name; what holds for all of an author's is checked once for a while."""
    if options.keys() - {"author"}:
        return make_plan(template_of(definition, office.defaults), options)
    place = definition.name, options.get("author")
    known, plan = office.plans.get(place, (None, None))
    if plan is None or known is not definition:
        plan = make_plan(template_of(definition, office.defaults), options)
        if len(office.plans) >= _MOST_PLANS:
            office.plans.clear()
        office.plans[place] = definition, plan
    return plan


def _placed(error: AdeError, index: int) -> AdeError:
    """The same error with where it is."""
    better = copy.copy(error)
    better.args = (f"tasks[{index}]: {error.detail}; nothing was stored",)
    return better


def _notification(task: Task, form: NewTask, now: int) -> list[Task]:
    """What tells the conversation that an agent's run is for of its end."""
    inbox_id = form.args.get("parent_conversation")
    if form.draft or not is_run(form.name) or not isinstance(inbox_id, str) or form.args.get("silent"):
        return []
    from ade.agents.notifications import notify_task

    return [admit(notify_task(task, inbox_id), now=now)]


# What new tasks may name over HTTP: tasks and keys of others are not to be had.


async def parents_of(office: Services, asked: RequestContext, forms: Sequence[NewTask]) -> dict[str, Task]:
    """The tasks that the new ones name as their parents.

    Over HTTP they must exist and be the caller's: his own, or what a worker of his runs, unless he may operate. One
    that is not is answered as if it did not exist. Raises InvalidTask.
    """
    wanted = [each for each in dict.fromkeys(form.parent for form in forms) if each is not None]
    ids = [each for each in wanted if is_task_id(each)]
    found = {task.id: task for task in await office.stores.tasks.get(ids) if task is not None}
    for task_id in wanted:
        if task_id not in found:
            raise _unknown(task_id)
    if asked.caller is None or Permission.OPERATE in asked.caller.permissions:
        return found
    others = {task.author_id: task.id for task in found.values() if not is_run_by(asked, task)}
    for author, task_id in others.items():
        await check_own(office, asked, author, _unknown(task_id))
    return found


def is_run_by(asked: RequestContext, task: Task) -> bool:
    """Whether a worker of the caller runs it now."""
    return task.status is Status.RUNNING and owner_of(task.worker_id or "") == account_of(asked)


def key_for(asked: RequestContext, key: str, parent: Task | None) -> str:
    """The key as it is stored.

    Keys hold for all tasks of a name in a queue. So that nobody uses up those of others, the keys of accounts that may
    not operate are their own. A run's children are the exception: the next run of the task, by whichever worker, must
    find them by the same key; but not under such keys as ADE gives itself.
    """
    caller = asked.caller
    if caller is None or Permission.OPERATE in caller.permissions:
        return key
    if parent is not None and is_run_by(asked, parent) and not key.startswith(OF_OTHERS):
        return key
    return own_task_key(caller.user.id, key)


def _unknown(task_id: str) -> InvalidTask:
    return InvalidTask(f"the parent {task_id[:60]!r} does not exist, or is no task of yours; nothing was stored")


# Tasks by their ids: those that exist, and those that the caller may change.


async def existing_task(office: Services, task_id: str) -> Task:
    """Raises UnknownTask."""
    check_id(task_id)
    return await get(office.stores, task_id)


async def owned_task(office: Services, asked: RequestContext, task_id: str) -> Task:
    """The task, if the caller may change it and means this version of it. Raises UnknownTask, and 412."""
    task = await existing_task(office, task_id)
    if asked.access is RouteAccess.OWN:
        await check_own(office, asked, task.author_id, unknown(task_id))
    asked.check_version(task.version)
    return task


def check_id(task_id: str) -> None:
    """What is no id is not looked for."""
    if not is_task_id(task_id):
        raise unknown(task_id)


def matches_id_prefix(asked: RequestContext, task: Task) -> None:
    """For the use case, which decides on the newest record: still the version that the caller means. Raises 412."""
    asked.check_version(task.version)


# What is done to one task after it was made.


async def cancel_task(office: Services, asked: RequestContext, task_id: str, body: Cancel) -> Task:
    await owned_task(office, asked, task_id)
    check = partial(matches_id_prefix, asked)
    return await tasks_service.cancel(office.stores, task_id, body.reason, actor=asked.actor, check=check)


async def retry_task(office: Services, asked: RequestContext, task_id: str, body: RetryTask) -> Task:
    """A failed task, discarded or not, runs again as a new generation with fresh attempts."""
    task = await owned_task(office, asked, task_id)
    return await replayed(office, asked, task, body.args)


async def replayed(office: Services, asked: RequestContext, task: Task, args: dict[str, Any] | None) -> Task:
    """Nothing of corrected arguments is kept for a task that cannot be replayed."""
    if task.status is not Status.FAILED:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a failed one can be run again")
    return await tasks_service.replay(
        office.stores,
        office.payloads,
        task.id,
        args=None if args is None else await _checked(office, task, args),
        actor=asked.actor,
        check=partial(matches_id_prefix, asked),
    )


async def edit_task(office: Services, asked: RequestContext, task_id: str, body: EditTask) -> Task:
    """A draft. Whoever edits a task cannot approve it."""
    task = await owned_task(office, asked, task_id)
    if task.status is not Status.DRAFT:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a draft can be edited")
    said = {name: value for name, value in structs.asdict(body).items() if value is not None}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    if body.args is not None:
        fields["args"] = await _checked(office, task, body.args)
    if not fields:
        raise InvalidTask("say what shall be different: args, description, priority, tags or resources")
    return await tasks_service.edit(
        office.stores, office.payloads, task_id, actor=_who(asked), check=partial(matches_id_prefix, asked), **fields
    )


async def submit_task(office: Services, asked: RequestContext, task_id: str, body: Nothing) -> Task:
    """It is frozen and assessed; where it is previewed first, the answer is that it is submitted."""
    from ade.approvals.submission import submit

    await owned_task(office, asked, task_id)
    return await submit(office.stores, office.payloads, task_id, actor=_who(asked))


async def apply_task(office: Services, asked: RequestContext, task_id: str, body: Nothing) -> Task:
    """An approved task that waits for a hand joins its queue, if its approval is still good."""
    from ade.approvals.service import start

    await owned_task(office, asked, task_id)
    return await start(office.stores, task_id, actor=_who(asked), check=partial(matches_id_prefix, asked))


async def roll_back_task(office: Services, asked: RequestContext, task_id: str, body: Nothing) -> Task:
    """The task that undoes it: the same one, however often it is asked for."""
    from ade.approvals.rollback import roll_back

    await owned_task(office, asked, task_id)
    return await roll_back(office.stores, office.payloads, task_id, actor=_who(asked))


async def _checked(office: Services, task: Task, args: dict[str, Any]) -> Raw:
    _, raw = await arguments_by_name(office.stores, task.name, args, allow_unknown=True)
    return raw


def _who(asked: RequestContext) -> str:
    """Who has a hand in it, as an account: that counts when people vote on it."""
    return asked.author or asked.actor


# Tasks: find them, look at one.


LARGEST_PAGE = 8_000_000  # bytes of arguments and results in one answer


async def list_tasks(office: Services, asked: RequestContext, query: ListTasks) -> Page[Task]:
    """A page has fewer than were asked for where they are large; the next one goes on there."""
    after = position("tasks", query)
    wanted = structs.replace(
        query_of(query),
        oldest_first=query.order == "oldest",
        limit=query.limit,
        after=after if isinstance(after, int) else None,
    )
    found = await find_some(office, wanted)
    return page("tasks", query, found.tasks, found.next)


async def find_some(office: Services, wanted: TaskQuery) -> TaskPage:
    """As many as are asked for, and fewer where they are large; one in any case."""
    found = await office.stores.tasks.find(wanted)
    while (size := size_of(found.tasks)) > LARGEST_PAGE and len(found.tasks) > 1:
        fewer = max(len(found.tasks) * LARGEST_PAGE // (2 * size), 1)
        found = await office.stores.tasks.find(structs.replace(wanted, limit=fewer))
    return found


def size_of(tasks: Iterable[Task]) -> int:
    """In bytes, about."""
    return sum(len(task.args) + (0 if task.result is None else len(task.result)) for task in tasks)


def query_of(query: TaskFilter) -> TaskQuery:
    return TaskQuery(
        statuses=frozenset(query.status),
        queue=query.queue,
        name=query.name,
        tag=query.tag,
        resource=query.resource,
        parent_id=query.parent,
        author_id=query.author,
        worker_id=query.worker,
        text=query.text,
        created_from=_ms(query.created_from),
        created_before=_ms(query.created_before),
        discarded=query.discarded,
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


async def get_task(office: Services, asked: RequestContext, task_id: str, query: GetTask) -> Task:
    """With `wait` the answer comes when the task is final, or as it is when that has not happened by then."""
    check_id(task_id)
    task = await _awaited(office, task_id, asked.wait_s) or await existing_task(office, task_id)
    return structs.replace(task, args=await office.payloads.load(task.args)) if query.whole else task


async def _awaited(office: Services, task_id: str, wait_s: float) -> Task | None:
    if wait_s <= 0:
        return None
    try:
        return await office.watch().wait(task_id, wait_s)
    except WaitTimeout:
        return None


# What is known about one task: its result, what it has written, what has happened to it, why it waits.


_LARGEST_SCHEMAS = 500_000  # bytes on one page


async def get_task_result(office: Services, asked: RequestContext, task_id: str) -> StoredTaskResult:
    """Raises ResultExpired where it was kept only for a time."""
    task = await existing_task(office, task_id)
    result = await result_of(office.stores, office.payloads, task)
    if task.result_expired or (result is None and task.result is not None):
        raise ResultExpired(f"the result of task {task.id} was kept only for its result_ttl and is gone")
    return _result(task, result)


def _result(task: Task, result: MaybeRaw) -> StoredTaskResult:
    return StoredTaskResult(
        task_id=task.id,
        status=task.status,
        version=task.version,
        result=result,
        error=task.error,
        reason=task.reason,
    )


async def get_task_output(office: Services, asked: RequestContext, task_id: str, query: ListLines) -> Page[OutputLine]:
    """Of all its runs, in the order they were written. To go on later, give the seq of the last line as `after`. A page
    ends early where lines are long."""
    after = await _begin(office, f"output:{task_id}", task_id, query)
    found = await office.stores.outputs.read_output(task_id, after, query.limit)
    lines = first_lines(found, LARGEST_PAGE)
    is_more = len(found) == query.limit or len(lines) < len(found)
    return page(f"output:{task_id}", query, lines, lines[-1].seq if is_more else None)


def first_lines(lines: Sequence[OutputLine], most: int) -> Sequence[OutputLine]:
    """As many of them as have so many characters together; one in any case."""
    ends = accumulate(len(line.text) for line in lines)
    return lines[: max(sum(end <= most for end in ends), 1)]


async def list_task_events(office: Services, asked: RequestContext, task_id: str, query: ListLines) -> Page[Event]:
    """In the order they happened."""
    after = await _begin(office, f"events:{task_id}", task_id, query)
    events = await office.stores.events.read(after, query.limit, task_id=task_id)
    shown = events if can_read_access_events(asked.caller) else [event for event in events if not is_of_access(event)]
    return page(f"events:{task_id}", query, shown, events[-1].seq if len(events) == query.limit else None)


async def _begin(office: Services, of_list: str, task_id: str, query: ListLines) -> int:
    await existing_task(office, task_id)
    begin = position(of_list, query)
    return begin if isinstance(begin, int) else query.after


async def explain_task(office: Services, asked: RequestContext, task_id: str) -> Explanation:
    from ade.tasks.explain import explain

    check_id(task_id)
    return await explain(office.stores, task_id)


async def list_definitions(office: Services, asked: RequestContext, query: ListNames) -> Page[Definition]:
    """A page ends early where schemas are large; the next one goes on there."""
    begin = position("definitions", query)
    begin = begin if isinstance(begin, int) and begin >= 0 else 0
    definitions = await office.stores.workers.definitions()
    end, size, last = begin, 0, min(begin + query.limit, len(definitions))
    while end < last and size < _LARGEST_SCHEMAS:
        size += len(msgspec.json.encode(definitions[end].schema))
        end += 1
    return page("definitions", query, definitions[begin:end], end if end < len(definitions) else None)
