"""What people are told about accounts, tokens, sessions and delegations."""

from ade.core.errors import AdeError


class InvalidAccount(AdeError):
    """The account's name, roles or owner are not valid. Nothing was stored; correct them and try again."""

    code = "invalid_account"


class UnknownAccount(AdeError):
    """No account with this name exists."""

    code = "unknown_account"
    usual_advice = "`ade users list` shows those that do"


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
    """No access token with this id exists."""

    code = "unknown_token"
    usual_advice = "`ade tokens list` shows those that do"


class UnknownSession(AdeError):
    """No login session with this id is live. The list of sessions shows those that are."""

    code = "unknown_session"


class InvalidDelegation(AdeError):
    """The delegation is not valid. Nothing was stored; correct it and try again."""

    code = "invalid_delegation"


class UnknownDelegation(AdeError):
    """No delegation with this id exists."""

    code = "unknown_delegation"
    usual_advice = "`ade delegations list` shows those that do"


class WeakPassword(AdeError):
    """The password is too short or too long. Use 12 to 1,000 characters."""

    code = "weak_password"


class NotAuthenticated(AdeError):
    """It is not known who you are: the name or password, the token or the session is not valid. Sign in again."""

    code = "not_authenticated"


class UnsafeBind(AdeError):
    """Without authentication a server is for this machine alone. Listen on 127.0.0.1, or set http.auth to required."""

    code = "unsafe_bind"


class TooManyRequests(AdeError):
    """The account asks more often than it may. Try again after the time given in `retry_after` (seconds)."""

    code = "too_many_requests"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after
