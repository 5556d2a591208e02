"""One line in the log for each request, where that is wanted: what was asked for, by whom, and how it was answered.

Nothing that a stranger writes gets into it: the path is that of the route, so neither ids nor parameters are told, and
every field is short.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any, Literal

from ade.http.messages import Request, Send
from ade.logs import Log

Which = Literal["off", "errors", "all"]
UNKNOWN = "unknown"  # the path of a request that was refused before its route was found
CLIENT_GONE = 499  # nobody waited for the answer; what other servers write for it too
_FIRST_ERROR = 400
_LONGEST_METHOD = 20
log = Log("ade.http.access")


class AccessLog:
    """Tells of all requests, or of those alone that were refused or failed."""

    def __init__(self, which: Literal["errors", "all"]) -> None:
        self._from_status = _FIRST_ERROR if which == "errors" else 0

    async def around(self, request: Request, send: Send, answer: Callable[[Request, Send], Awaitable[None]]) -> None:
        """Answer a request, and tell of it when that is over: of a stream, when it has ended."""
        began, sent = perf_counter(), _Sent(send)
        try:
            await answer(request, sent)
        finally:
            self._tell(request, sent, perf_counter() - began)

    def _tell(self, request: Request, sent: "_Sent", seconds: float) -> None:
        if sent.status < self._from_status:
            return
        whose = {} if request.account is None else {"account": request.account}
        log.info(
            "http.request",
            method=_method(request.method),
            path=request.route or UNKNOWN,
            status=sent.status,
            ms=round(seconds * 1000, 1),
            bytes=sent.size,
            **whose,
            request=request.id,
        )


class _Sent:
    """Passes on what is sent, and counts it."""

    __slots__ = ("_send", "size", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = CLIENT_GONE  # unless something is sent
        self.size = 0  # of the body, in bytes

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.size += len(message["body"])
        await self._send(message)


def _method(text: str) -> str:
    is_plain = len(text) <= _LONGEST_METHOD and text.isascii() and text.isalpha()
    return text if is_plain else UNKNOWN
