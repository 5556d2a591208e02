"""What people are told about accounts, tokens, sessions and delegations."""

from ade.core.errors import AdeError


class InvalidAccount(AdeError):
    """The account's name, roles or owner are not valid. Nothing was stored; correct them and try again."""

    code = "invalid_account"


class UnknownAccount(AdeError):
    """No account with this name exists. `ade users list` shows those that do."""

    code = "unknown_account"


class AccountExists(AdeError):
    """An account with this name exists already, perhaps a deactivated one. Names are never given to somebody else."""

    code = "account_exists"


class LastAdmin(AdeError):
    """This is the last active admin. Make somebody else an admin first."""

    code = "last_admin"


class InvalidToken(AdeError):
    """The access token's scopes or end are not valid. Nothing was stored; correct them and try again."""

    code = "invalid_token"


class UnknownToken(AdeError):
    """No access token with this id exists. `ade tokens list` shows those that do."""

    code = "unknown_token"


class InvalidDelegation(AdeError):
    """The delegation is not valid. Nothing was stored; correct it and try again."""

    code = "invalid_delegation"


class UnknownDelegation(AdeError):
    """No delegation with this id exists. `ade delegations list` shows those that do."""

    code = "unknown_delegation"


class WeakPassword(AdeError):
    """The password is too short or too long. Use 12 to 1,000 characters."""

    code = "weak_password"


class NotAuthenticated(AdeError):
    """It is not known who you are: the name or password, the token or the session is not valid. Sign in again."""

    code = "not_authenticated"


class TooManyRequests(AdeError):
    """The account asks more often than it may. Try again after the time given in `retry_after` (seconds)."""

    code = "too_many_requests"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after
