"""The client: one method per operation, the same over HTTP and directly on a local store."""

from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ade.client.api import Api
from ade.client.transport import EventSubscriptionRequest, Transport
from ade.common.calls import Call, ClosingCall, Portal, Stream

if TYPE_CHECKING:
    import ssl

    from ade.events.feed_items import Gap
    from ade.events.model import Event
    from ade.server.pagination import Page, RawContent
    from ade.tasks.model import OutputLine, Task

T = TypeVar("T")


class Client(Api):
    """Every method answers a Call: `await client.get_task(id)`, or `client.get_task(id).wait()` without an event loop.

    `async with` closes it at the end; without, call `close`.
    """

    def __init__(self, transport: Transport, portal: Portal | None = None) -> None:
        self._transport = transport
        self._portal = portal or Portal()
        self._closings = 0

    def __repr__(self) -> str:
        return f"<client of {self._transport!r}>"

    def wait_for_task(self, task_id: str, timeout: float | None = None) -> "Call[Task]":
        """The task once it is final, however it ended. Raises WaitTimeout after `timeout` seconds."""
        return Call(self._wait_for_task(task_id, timeout), self._portal)

    def every(self, listing: "Callable[..., Call[Page[T]]]", **filters: Any) -> Stream[T]:
        """All items of a list, page by page: `client.every(client.list_tasks, queue="mail")`."""
        return Stream(lambda: self._every(listing, filters), self._portal)

    def follow_events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        tasks: Sequence[str] = (),
        queues: Sequence[str] = (),
        names: Sequence[str] = (),
        inboxes: Sequence[str] = (),
        locks: Sequence[str] = (),
    ) -> "Stream[Event | Gap]":
        """Events as they happen, from now on or behind the seq `after`; all that is said must hold.

        After a break it goes on behind the last one. A Gap says that some may be missing: they were no longer kept.
        """
        spec = EventSubscriptionRequest(
            after=after, types=types, tasks=tasks, queues=queues, names=names, inboxes=inboxes, locks=locks
        )
        return Stream(lambda: self._transport.follow_events(spec), self._portal)

    def follow_output(self, task_id: str, *, after: int = 0) -> "Stream[OutputLine]":
        """The lines of a task as they are written, until it is final."""
        return Stream(lambda: self._transport.follow_output(task_id, after), self._portal)

    def pieces(self, content: "RawContent") -> Stream[bytes]:
        """The body of an answer that is no record, such as an exported file, as it comes."""
        return Stream(lambda: _pieces(content), self._portal)

    def close(self) -> Call[None]:
        return ClosingCall(self._close(), self._portal)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _close(self) -> None:
        self._closings += 1
        await self._transport.close()

    async def _wait_for_task(self, task_id: str, timeout: float | None) -> "Task":
        from ade.client.responses import TaskWait  # asyncio: 13 ms and 3 MiB, which many commands save

        return await TaskWait(self, task_id, lambda: self._closings).final(timeout)

    async def _every(self, listing: "Callable[..., Call[Page[T]]]", filters: dict[str, Any]) -> AsyncGenerator[T, None]:
        cursor: str | None = None
        while True:
            page = await listing(**filters, cursor=cursor)
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return


async def _pieces(content: "RawContent") -> AsyncGenerator[bytes, None]:
    if isinstance(content.body, bytes):
        yield content.body
    else:
        async for piece in content.body:
            yield piece


def connect(
    url: str,
    *,
    token: str | None = None,
    timeout: float = 30.0,
    tls: "ssl.SSLContext | None" = None,
    allow_plain: bool = False,
) -> Client:
    """A client of the server at this URL, such as `https://ade.example.org`. Nothing is sent before the first call.

    `token` is an access token (`ade tokens create`), otherwise that of ADE_TOKEN. It is never sent over plain http to
    another machine, unless `allow_plain` says that the network is trusted. `timeout` is for one request, in seconds.
    Raises InvalidUrl.
    """
    from ade.client.http_transport import HttpTransport

    return Client(HttpTransport(url, token=token, timeout_s=timeout, tls=tls, allow_plain=allow_plain))
