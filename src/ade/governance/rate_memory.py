"""Who was refused by a rate, and until when: nothing makes that time come earlier, so the store is not asked again
before. Whoever goes on asking all the same costs it nothing."""

from ade.ports import Stores

_MOST = 10_000


class RateMemory:
    """For one event loop."""

    def __init__(self, stores: Stores) -> None:
        self._clock = stores.clock
        self._until: dict[str, int] = {}  # steady time

    def wait_ms(self, key: str) -> int:
        """How long it still takes; 0: ask the store."""
        until = self._until.get(key)
        return 0 if until is None else max(until - self._clock.steady(), 0)

    def note(self, key: str, wait_ms: int) -> None:
        """What the store has said; 0: it was let through."""
        if not wait_ms:
            self._until.pop(key, None)
            return
        if key not in self._until and len(self._until) >= _MOST:
            for oldest in list(self._until)[: _MOST // 2]:
                del self._until[oldest]
        self._until[key] = self._clock.steady() + wait_ms
