"""Where the records of the directory are kept. Tokens, sessions and links are found by the hash of their secret."""

from ade.core.accounts.login_links import LoginLink
from ade.core.accounts.sessions import LoginSession
from ade.core.accounts.tokens import Token
from ade.core.accounts.users import User
from ade.governance.kept import Shelf

USERS = Shelf("user", User)
TOKENS = Shelf("token", Token, lambda token: token.kept_until)
SESSIONS = Shelf("session", LoginSession, lambda session: session.ends_at)
LINKS = Shelf("login_link", LoginLink, lambda link: link.expires_at)
