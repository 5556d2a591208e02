"""The store transport: it runs operations directly on a store in this process, without a server."""

import asyncio
from collections.abc import AsyncGenerator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ade.client.api.routes import CLIENT_ROUTES
from ade.client.transport import EventSubscriptionRequest, OperationCall
from ade.events.filters import compile_filter, parse_filter
from ade.server.context import RequestContext, Services
from ade.server.operation import OPERATIONS, Operation, check_access
from ade.server.pagination import VersionedRecord
from ade.server.problems import RequestRefused, error_of_refusal
from ade.server.redaction import redacted
from ade.stores.ports import DONE
from ade.tasks.service import get

if TYPE_CHECKING:
    from ade.events.feed_items import Gap
    from ade.events.model import Event
    from ade.tasks.model import OutputLine

_PAGE = 500
_LOOK_S = 0.3  # poll interval: lines and most events send no notification
_BREATH_S = 0.1  # minimum time between two polls, however many tasks finish


class StoreTransport:
    """Returns the same results as a server, without private fields.

    Plain reads need no event loop. Without authentication (`request.caller` is None), no access is checked.
    """

    def __init__(self, services: Services, request: RequestContext) -> None:
        self._services = services
        self._request = request

    def __repr__(self) -> str:
        return "StoreTransport()"

    async def call(self, ask: OperationCall) -> Any:
        operation = _loaded(ask.operation)
        forms = {"query": ask.query, "body": ask.body}
        given = {name: form for name, form in forms.items() if form is not None}
        try:
            answer = await operation.function(self._services, self._asking(ask, operation), *ask.path, **given)
        except RequestRefused as refused:
            raise error_of_refusal(refused) from refused
        return _redacted(answer)

    async def follow_events(self, spec: EventSubscriptionRequest) -> "AsyncGenerator[Event | Gap, None]":
        is_wanted = compile_filter(parse_filter(spec.pairs()))
        events = self._services.stores.events
        last = spec.after
        if last is None:
            newest = await events.newest(1)
            last = newest[-1].seq if newest else 0
        while True:
            while page := await events.read(last, _PAGE):
                last = page[-1].seq
                for event in page:
                    if is_wanted(event):
                        yield event
            await asyncio.sleep(_LOOK_S)

    async def follow_output(self, task_id: str, after: int) -> "AsyncGenerator[OutputLine, None]":
        stores = self._services.stores
        while True:
            seen = stores.wakeups.generation(DONE)
            is_final = (await get(stores, task_id)).is_final  # before reading, so that no last line is missed
            while page := await stores.outputs.read_output(task_id, after, _PAGE):
                after = page[-1].seq
                for line in page:
                    yield line
            if is_final:
                return
            await stores.wakeups.wait(DONE, seen, _LOOK_S)
            await asyncio.sleep(_BREATH_S)

    async def close(self) -> None:
        """Do nothing: whatever opened the store closes it."""

    def _asking(self, ask: OperationCall, operation: Operation) -> RequestContext:
        """Return the context of a call. Raises NotPermitted."""
        who = replace(self._request, wait_s=_wait_s(ask), operation=ask.operation)
        if who.caller is None and ask.body is None:
            return who  # a read without authentication needs no more
        access, route = who.access, operation.route
        if who.caller is not None:
            access = check_access(route, who.caller)
        key = ask.checked_key()
        if key is not None:
            from ade.server.idempotency import task_key

            key = task_key(who.actor, key)
        return replace(who, access=access, key=key, if_match=ask.tag(route))


def _loaded(name: str) -> Operation:
    """Return the operation, importing only its own module."""
    if name not in OPERATIONS:
        import_module(CLIENT_ROUTES[name].module)
    return OPERATIONS[name]


def _wait_s(ask: OperationCall) -> float:
    return float(getattr(ask.query, "wait", None) or 0)


def _redacted(answer: Any) -> Any:
    """Return the result without private fields."""
    if isinstance(answer, VersionedRecord):
        return VersionedRecord(redacted(answer.record), answer.version)
    return redacted(answer)
