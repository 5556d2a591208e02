"""Named points in a pump at which a test may pause it, look, or kill it."""

from collections.abc import Awaitable, Callable

TAKEN, SETTLED, IDLE, RESTING, ENDED = "taken", "settled", "idle", "resting", "ended"
REFUSED, LOOKED = "refused", "looked"  # of the house: another process has the conversation; it has asked the store

Hook = Callable[[str], Awaitable[None]]


class Probe:
    """A hook is given the id of the inbox. In production nobody listens."""

    __slots__ = ("_hooks",)

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}

    def on(self, point: str, hook: Hook) -> None:
        self._hooks[point] = hook

    async def __call__(self, point: str, inbox_id: str) -> None:
        hook = self._hooks.get(point)
        if hook is not None:
            await hook(inbox_id)
