"""Links that let one person in once: for the first admin, and for whoever has no password, or has lost it."""

from msgspec import Struct

LOGIN_LINK_CREATED, LOGIN_LINK_USED = "login_link.created", "login_link.used"
LASTS_MS = 10 * 60_000


class LoginLink(Struct, frozen=True, kw_only=True):
    """The secret itself is nowhere; the document is found by its SHA-256, and is gone once it was used."""

    account: str
    created_at: int
    expires_at: int

    def is_good(self, now: int) -> bool:
        return now < self.expires_at


def link_address(base_url: str, secret: str) -> str:
    """What to open in a browser. The secret stands behind #, which no browser sends and no server writes down: the
    page hands it in by itself."""
    return f"{base_url}/login#{secret}"
