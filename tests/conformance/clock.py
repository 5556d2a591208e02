"""A clock that moves only when a story says so."""

START = 1_760_000_000_000


class StoryClock:
    """Wall time and steady time, in milliseconds. They move together unless the wall clock is put elsewhere."""

    def __init__(self, start: int = START) -> None:
        self._wall = start
        self._steady = start

    def now(self) -> int:
        return self._wall

    def steady(self) -> int:
        return self._steady

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall += round(seconds * 1000)
        self._steady += round(seconds * 1000)

    def jump_wall(self, seconds: float) -> None:
        """Put the wall clock right, or wrong; steady time does not notice."""
        self._wall += round(seconds * 1000)
