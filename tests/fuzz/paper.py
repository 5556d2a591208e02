"""A transport of which both ends are here: what is written to it is kept, and nothing goes anywhere."""

import asyncio
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class PaperTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("203.0.113.9", 4711), "sockname": ("203.0.113.1", 80)})
        self.written = bytearray()
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Whatever comes is here already."""

    def resume_reading(self) -> None:
        """The same."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def complete(story: Coroutine[Any, Any, T]) -> T:
    """Run it to its end. What goes wrong in callbacks comes out too."""
    loop, faults = _loop(), []
    loop.set_exception_handler(lambda _, told: faults.append(told.get("exception") or RuntimeError(told["message"])))
    answer = loop.run_until_complete(story)
    for fault in faults:
        raise fault
    return answer
