"""The Python API: stubs of what users hold in their hands, and a line for every option and every field."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import ade
from ade.agents.runs.model import AgentResult
from ade.agents.task_tool import TaskOutput, TaskResult, TaskStop, TaskTool
from ade.app.ade import Ade
from ade.app.agents import Agents, RunOptions
from ade.app.functions import TaskFunction, TaskHandle
from ade.app.lock import LockHandle
from ade.approvals.digest import Preview
from ade.client.client import Client, connect
from ade.common.calls import Call, Stream
from ade.errors import AdeError, TaskCancelled, TaskFailed
from ade.events.model import Event
from ade.failures import Backoff, TaskError
from ade.locks.holder import Fence
from ade.locks.run_locks import RunLock
from ade.tasks.model import OutputLine, Task
from ade.tasks.options import DeclaredOptions, TaskOptions
from ade.tasks.outcomes import Failed, RateLimited, Released, Retry, Succeeded, Unrecoverable
from ade.tasks.reasons import Explanation, Reason
from ade.testing import TestClock, TestKit, harness
from ade.worker.context import Context, SyncContext
from ade.worker.handler_call import Middleware
from ade.worker.supervisor import Handover
from docs.generators.meanings import DECLARED_MEANS, NAMES_MEAN, OPTIONS_MEAN, RUN_OPTIONS_MEAN, TASK_MEANS
from docs.generators.stubs import class_stub, fields_of, function_stub
from docs.generators.tables import Block, table


class Shown(NamedTuple):
    """A class of the reference: the members that are shown, and those that only ADE's own rooms use."""

    kind: type[Any]
    members: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


CLASSES: Mapping[str, Shown] = {
    "ade": Shown(
        Ade,
        (
            "__init__",
            "settings",
            "author",
            "agents",
            "cron",
            "middleware",
            "enqueue",
            "enqueue_many",
            "draft",
            "lock",
            "handle",
            "worker",
            "run_worker",
            "work",
            "close",
        ),
        (
            *("open", "opened", "redirected", "signature_of", "store_tasks", "store_tasks_blocking"),
            *("template_of", "call_by_name"),
        ),
    ),
    "task-function": Shown(
        TaskFunction,
        ("name", "function", "enqueue", "call", "draft", "preview", "rollback", "with_options", "handle"),
        ("plan", "make_task", "handle_of"),
    ),
    "task-handle": Shown(
        TaskHandle,
        (
            "result",
            "wait",
            "get",
            "status",
            "cancel",
            "reschedule",
            "submit",
            "vote",
            "start",
            "roll_back",
            "explain",
            "events",
            "output",
        ),
    ),
    "call": Shown(Call, ("__await__", "wait"), ("send", "throw", "close")),
    "stream": Shown(Stream, ("__aiter__", "__iter__")),
    "client": Shown(
        Client,
        ("wait_for_task", "every", "follow_events", "follow_output", "pieces", "close"),
    ),
    "context": Shown(
        Context,
        (
            "cancelled",
            "raise_if_cancelled",
            "progress",
            "last_progress",
            "log",
            "print",
            "once",
            "settle",
            "forget",
            "enqueue",
            "hold",
            "guard",
            "allows",
            "lock",
            "token",
        ),
    ),
    "sync-context": Shown(
        SyncContext,
        ("cancelled", "raise_if_cancelled"),
        # The page says so: those of Context.
        (
            *("progress", "last_progress", "log", "print", "once", "settle", "forget", "enqueue"),
            *("hold", "guard", "allows", "lock", "token"),
        ),
    ),
    "preview": Shown(Preview),
    "lock-handle": Shown(LockHandle, ("is_lost", "check", "token", "mode", "upgrade", "downgrade")),
    "run-lock": Shown(RunLock, ("check", "token"), ("enter", "leave")),
    "agents": Shown(Agents, ("serve", "run", "conversation", "task_tool"), ("known_types", "enqueue_run")),
    "agent-result": Shown(AgentResult),
    "task-tool": Shown(TaskTool, ("run",)),
    "task-result": Shown(TaskResult),
    "task-output": Shown(TaskOutput, ("run",)),
    "task-stop": Shown(TaskStop, ("run",)),
    "fence": Shown(Fence, ("__init__", "check")),
    "retry": Shown(Retry, ("__init__",)),
    "rate-limited": Shown(RateLimited, ("__init__",)),
    "unrecoverable": Shown(Unrecoverable),
    "backoff": Shown(Backoff, (), ("delay_ms",)),
    "middleware": Shown(Middleware, ("__call__",)),
    "succeeded": Shown(Succeeded),
    "failed": Shown(Failed),
    "released": Shown(Released),
    "handover": Shown(Handover),
    "task-error": Shown(TaskError),
    "event": Shown(Event),
    "output-line": Shown(OutputLine),
    "explanation": Shown(Explanation, ("codes",)),
    "reason": Shown(Reason),
    "ade-error": Shown(AdeError, ("detail",)),
    "task-failed": Shown(TaskFailed, ("__init__",)),
    "task-cancelled": Shown(TaskCancelled, ("__init__",)),
    "test-kit": Shown(TestKit, ("drain", "advance", "finish")),
    "test-clock": Shown(TestClock, ("__init__", "now", "steady", "judged", "advance", "jump_wall")),
}


def _stub(name: str) -> str:
    shown = CLASSES[name]
    return class_stub(shown.kind, shown.members)


def _names() -> str:
    return table(["name", "what it is"], ([f"`{name}`", NAMES_MEAN[name]] for name in ade.__all__))


def _described(kind: type[Any], head: str, means: Mapping[str, str]) -> str:
    rows = ([f"`{name}`", f"`{annotation}`", means[name]] for name, annotation in fields_of(kind).items())
    return table([head, "type", "meaning"], rows)


API_BLOCKS: Mapping[str, Block] = {
    "api-names": _names,
    "api-declared": partial(_described, DeclaredOptions, "option", DECLARED_MEANS),
    "api-options": partial(_described, TaskOptions, "option", OPTIONS_MEAN),
    "api-run-options": partial(_described, RunOptions, "option", RUN_OPTIONS_MEAN),
    "api-task-record": partial(_described, Task, "field", TASK_MEANS),
    "api-harness": partial(function_stub, harness),
    "api-connect": partial(function_stub, connect),
    **{f"api-{name}": partial(_stub, name) for name in CLASSES},
}
