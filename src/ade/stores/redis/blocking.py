"""New tasks of threads that run no event loop."""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from ade.core.records import Task
from ade.stores.redis.adding import Adding
from ade.stores.redis.direct import NotAnswered
from ade.stores.redis.link import Link

Result = TypeVar("Result")
_MOST, _MOST_BYTES = 500, 1 << 20  # in one call; more takes so long that the way it goes does not matter


class BlockingAdds:
    """`adding` must be one that never waits on an event loop."""

    def __init__(self, link: Link, adding: Adding) -> None:
        self._link = link
        self._adding = adding

    def add(self, tasks: Sequence[Task]) -> list[Task] | None:
        self._link.check_process()
        if len(tasks) > 1 and (len(tasks) > _MOST or sum(len(task.args) for task in tasks) > _MOST_BYTES):
            return None
        try:
            return run_to_its_end(self._adding.add(tasks))
        except NotAnswered:
            return None


def run_to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """What never waits needs no event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise AssertionError("a blocking call waited on an event loop")
