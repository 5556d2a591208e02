"""Who asks for something, once it is known who that is."""

from msgspec import Struct

from ade.core.accounts.permissions import Permission
from ade.core.accounts.sessions import LoginSession
from ade.core.accounts.tokens import Token
from ade.core.accounts.users import User
from ade.core.approvals.refusals import NotPermitted


class Caller(Struct, frozen=True, kw_only=True):
    """An account as it is now, and by what it was recognised."""

    user: User
    session: LoginSession | None = None
    token: Token | None = None

    @property
    def permissions(self) -> frozenset[Permission]:
        """Those of the account now; through a token, of these only the ones it was made for."""
        return self.user.permissions if self.token is None else self.user.permissions & self.token.scopes

    def require(self, permission: Permission) -> None:
        """Raise NotPermitted unless the caller has it."""
        if permission not in self.permissions:
            through = "" if self.token is None else " through this token"
            raise NotPermitted(f"{self.user.id} has not the permission {permission}{through}; an admin can give a role")
