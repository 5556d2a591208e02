"""Access tokens: how programs show whose they are. A token may do at most what its account may do."""

from msgspec import Struct

from ade.core.accounts.errors import InvalidToken
from ade.core.accounts.permissions import Permission
from ade.core.accounts.users import User

TOKEN_CREATED, TOKEN_REVOKED = "token.created", "token.revoked"
USUAL_MS, LONGEST_MS = 90 * 86_400_000, 366 * 86_400_000
KEPT_REVOKED_MS = 30 * 86_400_000  # so long a list shows that it was taken back
TOUCH_MS = 60_000  # `last_used_at` is at most this much behind
_LONGEST_LABEL = 100


class Token(Struct, frozen=True, kw_only=True):
    """The secret itself is nowhere; the document is found by its SHA-256."""

    id: str
    account: str
    scopes: frozenset[Permission]
    created_at: int
    expires_at: int
    label: str = ""  # what it is for
    last_used_at: int | None = None
    revoked_at: int | None = None

    def is_good(self, now: int) -> bool:
        return self.revoked_at is None and now < self.expires_at

    def is_behind(self, now: int) -> bool:
        """Whether it should be noted that it is in use."""
        return self.last_used_at is None or now - self.last_used_at >= TOUCH_MS

    @property
    def kept_until(self) -> int:
        return self.expires_at if self.revoked_at is None else self.revoked_at + KEPT_REVOKED_MS


def check_token(token: Token, user: User) -> None:
    """Raise InvalidToken for one that is good for nothing, or for more than its account."""
    if not token.scopes:
        raise InvalidToken(f"{user.id} has no permission that a token could have; give it a role first")
    beyond = token.scopes - user.permissions
    if beyond:
        raise InvalidToken(f"{user.id} has not the permission {', '.join(sorted(beyond))}, so no token of it can")
    if not token.created_at < token.expires_at <= token.created_at + LONGEST_MS:
        raise InvalidToken("a token ends in the future, and at most 366 days from now")
    if len(token.label) > _LONGEST_LABEL or not token.label.isprintable():
        raise InvalidToken(f"a label has at most {_LONGEST_LABEL} printable characters")
