"""Login sessions: somebody has shown who he is, by password or link, and need not do it again for a while."""

from msgspec import Struct

SESSION_OPENED, SESSION_ENDED, SESSION_CONFIRMED = "session.opened", "session.ended", "session.reauthenticated"
LONGEST_MS, IDLE_MS = 24 * 3_600_000, 60 * 60_000
FRESH_MS = 5 * 60_000  # so long somebody need not show once more who he is
TOUCH_MS = 60_000  # `last_active_at` is at most this much behind, so a session may end that much early
_SHOWN = 12


class LoginSession(Struct, frozen=True, kw_only=True):
    """`id` is the SHA-256 of the secret that the browser keeps."""

    id: str
    account: str
    created_at: int
    last_active_at: int
    reauthenticated_at: int  # when the password was given last; 0: not yet
    idle_ms: int = IDLE_MS
    lasts_ms: int = LONGEST_MS
    ip: str = ""
    user_agent: str = ""

    @property
    def ends_at(self) -> int:
        """Unless it is used before; and never later than the time it has in all."""
        return min(self.created_at + self.lasts_ms, self.last_active_at + self.idle_ms)

    @property
    def short_id(self) -> str:
        """Enough to tell sessions apart in the log."""
        return self.id[:_SHOWN]

    def is_live(self, now: int) -> bool:
        return now < self.ends_at

    def is_fresh(self, now: int) -> bool:
        return now - FRESH_MS <= self.reauthenticated_at <= now

    def is_behind(self, now: int) -> bool:
        return now - self.last_active_at >= min(TOUCH_MS, self.idle_ms // 2)
