"""Which partitions answer: a node that is away must not hold up the work of the others."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ade.core.errors import StoreUnavailable
from ade.logs import Log
from ade.stores.redis.link import Link

Answer = TypeVar("Answer")
_PATIENCE_S = 1.5  # with one of several; the others' work waits meanwhile
_AWAY_S = 2.0  # how long one that did not answer is left out

_log = Log("ade.store")


class Reach:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._away_until: dict[int, float] = {}

    async def each(
        self, partitions: Sequence[int], ask: Callable[[int, float | None], Awaitable[Answer]]
    ) -> dict[int, Answer]:
        """The answers of those that give one in time (`ask` gets the patience to have). Raises when none does."""
        if len(partitions) == 1:
            return {partitions[0]: await ask(partitions[0], None)}
        now = time.monotonic()
        near = [each for each in partitions if self._away_until.get(each, 0.0) <= now] or list(partitions)
        given = await asyncio.gather(*(ask(each, _PATIENCE_S) for each in near), return_exceptions=True)
        answers: dict[int, Answer] = {}
        for partition, answer in zip(near, given, strict=True):
            if isinstance(answer, StoreUnavailable):
                self._away_until[partition] = time.monotonic() + _AWAY_S
                _log.debug("store.partition_away", partition=partition, reason=answer.detail)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._away_until.pop(partition, None)
                answers[partition] = answer
        if not answers:
            raise next(answer for answer in given if isinstance(answer, StoreUnavailable))
        return answers
