"""Login sessions: somebody has given his password, and need not do it again for a while."""

from msgspec import Struct

SESSION_OPENED, SESSION_ENDED, SESSION_CONFIRMED = "session.opened", "session.ended", "session.reauthenticated"
LONGEST_MS, IDLE_MS = 24 * 3_600_000, 60 * 60_000
TOUCH_MS = 60_000  # `last_active_at` is at most this much behind, so a session may end that much early
_SHOWN = 12


class LoginSession(Struct, frozen=True, kw_only=True):
    """`id` is the SHA-256 of the secret that the browser keeps."""

    id: str
    account: str
    created_at: int
    last_active_at: int
    reauthenticated_at: int  # when the password was given last
    idle_ms: int = IDLE_MS
    ip: str = ""
    user_agent: str = ""

    @property
    def ends_at(self) -> int:
        """Unless it is used before; never more than a day after it began."""
        return min(self.created_at + LONGEST_MS, self.last_active_at + self.idle_ms)

    @property
    def short_id(self) -> str:
        """Enough to tell sessions apart in the log."""
        return self.id[:_SHOWN]

    def is_live(self, now: int) -> bool:
        return now < self.ends_at

    def is_behind(self, now: int) -> bool:
        return now - self.last_active_at >= min(TOUCH_MS, self.idle_ms // 2)
