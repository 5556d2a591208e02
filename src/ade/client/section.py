"""What the generated calls stand on."""

from typing import TYPE_CHECKING, TypeVar

from ade.calls.call import Call
from ade.client.transport import Ask

if TYPE_CHECKING:
    from msgspec import Struct

    from ade.calls.portal import Portal
    from ade.client.transport import Transport

T = TypeVar("T")


class Section:
    """Calls of one part of the interface."""

    _transport: "Transport"
    _portal: "Portal"

    def _call(
        self,
        operation: str,
        answer: type[T],
        *path: str,
        query: "Struct | None" = None,
        body: "Struct | None" = None,
        if_match: int | None = None,
        key: str | None = None,
    ) -> Call[T]:
        ask = Ask(operation=operation, answer=answer, path=path, query=query, body=body, if_match=if_match, key=key)
        return Call(self._transport.call(ask), self._portal)
