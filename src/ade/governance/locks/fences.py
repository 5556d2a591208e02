"""For what is protected by a lock: a sink that takes no write from who has lost it, however late the write comes."""

import threading

from ade.core.errors import StaleToken


class Fence:
    """Remembers the highest token it has seen of each resource, and refuses lower ones. For any thread.

    It stands where the writes arrive: in the service that owns the resource, or beside the file that is written. Keep
    `seen` with the resource itself if that outlives the process.
    """

    def __init__(self, seen: dict[str, int] | None = None) -> None:
        self.seen = {} if seen is None else seen
        self._lock = threading.Lock()

    def check(self, resource: str, token: int) -> None:
        """Raise StaleToken if somebody with a higher token was here before."""
        with self._lock:
            newest = self.seen.get(resource, 0)
            if token < newest:
                raise StaleToken(f"token {token} for {resource} is older than {newest}; the lock went to somebody else")
            self.seen[resource] = token
