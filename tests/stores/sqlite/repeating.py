"""A writer that does not know whether its first try was written."""

from collections.abc import Callable
from typing import Any

import apsw

from ade.stores.sqlite.writer import Writer


class RepeatingWriter:
    """Carries everything out twice, as after an error that does not tell whether it was written."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def call(
        self, function: Callable[[apsw.Connection], Any], afterwards: Callable[[], None] | None = None
    ) -> Any:
        await self._writer.call(function)
        return await self._writer.call(function, afterwards)
