"""The app: where its store is, which tasks it has, and how to enqueue, wait and work."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec
from msgspec import Raw, structs

from ade.app.call import Call
from ade.app.cron import declared_schedule
from ade.app.declare import make_handler
from ade.app.functions import AsyncTask, PlainTask, TaskFunction
from ade.app.handle import TaskHandle
from ade.app.opening import Opened, Opening
from ade.app.options import Declared, Options, make_plan
from ade.app.portal import Portal
from ade.core.errors import InvalidSchedule, UnknownName
from ade.core.records import Definition, Schedule, Task
from ade.core.retry import Backoff
from ade.ports import Clock
from ade.queue import enqueue as enqueueing
from ade.queue.coding import CODING_ERRORS
from ade.queue.handlers import Mode, Registry
from ade.queue.payloads import Payloads
from ade.queue.plans import Invocation, TaskDefaults, make_tasks, template_of
from ade.queue.schemas import check_against_schema, encode_unchecked
from ade.queue.signature import Signature
from ade.settings import Settings, load
from ade.wiring import open_stores
from ade.worker.context import Context, SyncContext
from ade.worker.perform import Middleware
