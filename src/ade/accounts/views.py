"""Views of accounts, sessions, and tokens. Secrets are only in newly created ones."""

from msgspec import Struct

from ade.accounts.model import Caller, LoginSession, Permission, Reads, Token, User
from ade.server.redaction import mark_private


class UserView(Struct, frozen=True, kw_only=True):
    """An account, without the hash of its password."""

    id: str
    display_name: str
    roles: list[str]
    permissions: list[Permission]
    is_active: bool
    is_human: bool
    has_password: bool
    created_at: int
    updated_at: int
    must_change_password: bool = False  # another account set it: it cannot vote before its owner has changed it
    person: str | None = None  # another account of the same human
    owner: str | None = None  # of a service account: the responsible person
    reads: Reads = Reads.ALL  # everything, or only its own tasks, their children, and its queues
    queues: list[str] = []  # the only queues from which its workers claim; empty: any
    names: list[str] = []  # the only tasks that its workers claim; empty: any


class SessionView(Struct, frozen=True, kw_only=True):
    """A login session. `id` tells sessions apart, and gives no access."""

    id: str
    account: str
    created_at: int
    last_active_at: int
    idle_ends_at: int  # unless it is used before
    expires_at: int  # even if it is used
    confirmed_at: int | None = None  # when the password was last given
    ip: str | None = None
    user_agent: str | None = None
    link_by: str | None = None  # the other account that created the login link which opened it
    is_current: bool = False


class CurrentAccount(Struct, frozen=True, kw_only=True):
    """The caller. `permissions` are those of this request: a token can have fewer than its account."""

    user: UserView
    permissions: list[Permission]
    session: SessionView | None = None
    token: Token | None = None


class EndedSessions(Struct, frozen=True, kw_only=True):
    """The result of ending all sessions of an account."""

    account: str
    ended: int  # number of sessions that ended


class CreatedLoginLink(Struct, frozen=True, kw_only=True):
    """A new login link. `secret` is shown only once; the page /login takes it after #."""

    account: str
    secret: str
    expires_at: int

    def __repr__(self) -> str:
        return f"CreatedLoginLink({self.account!r})"  # no secret in a log


class CreatedToken(Struct, frozen=True, kw_only=True):
    """A new access token. `secret` is shown only once."""

    id: str
    account: str
    scopes: frozenset[Permission]
    created_at: int
    expires_at: int
    secret: str
    label: str = ""

    def __repr__(self) -> str:
        return f"CreatedToken({self.id!r})"  # no secret in a log


class SignedIn(Struct, frozen=True, kw_only=True):
    """The account and its session after a sign-in."""

    account: str
    display_name: str
    roles: list[str]
    permissions: list[Permission]
    has_password: bool
    session: SessionView
    must_change_password: bool = False  # before it can vote, or grant access to others
    secret: str = ""  # only for the cookie

    def __repr__(self) -> str:
        return f"SignedIn({self.account!r})"  # no secret in a log


mark_private(SignedIn, "secret")  # here, before any wire format of it is built


def view_user(user: User) -> UserView:
    """Return an account for display."""
    return UserView(
        id=user.id,
        display_name=user.display_name,
        roles=sorted(user.roles),
        permissions=sorted(user.permissions),
        is_active=user.is_active,
        is_human=user.is_human,
        has_password=user.password is not None,
        created_at=user.created_at,
        updated_at=user.updated_at,
        must_change_password=user.must_change_password,
        person=user.person or None,
        owner=user.owner or None,
        reads=Reads.ALL if user.reads_everything else Reads.OWN,
        queues=list(user.queues),
        names=list(user.names),
    )


def view_session(session: LoginSession, current: LoginSession | None = None) -> SessionView:
    """Return a session for display."""
    return SessionView(
        id=session.short_id,
        account=session.account,
        created_at=session.created_at,
        last_active_at=session.last_active_at,
        idle_ends_at=session.ends_at,
        expires_at=session.created_at + session.lasts_ms,
        confirmed_at=session.reauthenticated_at or None,
        ip=session.ip or None,
        user_agent=session.user_agent or None,
        link_by=session.link_by or None,
        is_current=current is not None and current.id == session.id,
    )


def view_me(caller: Caller) -> CurrentAccount:
    """Return the caller for display."""
    token = caller.token
    return CurrentAccount(
        user=view_user(caller.user),
        permissions=sorted(caller.permissions),
        session=None if caller.session is None else view_session(caller.session, caller.session),
        token=token if token is not None and token.id else None,  # without authentication, the token is not a real one
    )
