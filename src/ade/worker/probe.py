"""Named points in the worker at which a test may pause it, look, or kill it."""

from collections.abc import Awaitable, Callable

CLAIMED, PERFORMED, COMMITTED = "claimed", "performed", "committed"


class Probe:
    """In production nobody listens, and `armed` is False."""

    __slots__ = ("_hooks", "armed")

    def __init__(self) -> None:
        self._hooks: dict[str, Callable[[], Awaitable[None]]] = {}
        self.armed = False

    def on(self, point: str, hook: Callable[[], Awaitable[None]]) -> None:
        self._hooks[point] = hook
        self.armed = True

    async def __call__(self, point: str) -> None:
        hook = self._hooks.get(point)
        if hook is not None:
            await hook()
