"""Records, rules, and errors of accounts: users, permissions, tokens, login sessions, login links."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from enum import StrEnum, auto
from functools import lru_cache

from msgspec import Struct, structs

from ade.errors import AdeError, NotPermitted

# Errors of accounts, tokens, sessions, and delegations.


class InvalidAccount(AdeError):
    """The account's name, roles or owner are not valid. Nothing was stored; correct them and try again."""

    code = "invalid_account"


class UnknownAccount(AdeError):
    """No account with this name exists."""

    code = "unknown_account"
    usual_advice = "`ade users list` shows those that do"


class AccountExists(AdeError):
    """An account with this name already exists, perhaps deactivated. Names are never reassigned."""

    code = "account_exists"


class LastAdmin(AdeError):
    """This is the last active admin. Make someone else an admin first."""

    code = "last_admin"


class InvalidToken(AdeError):
    """The access token's scopes or expiry are not valid. Nothing was stored; correct them and try again."""

    code = "invalid_token"


class UnknownToken(AdeError):
    """No access token with this id exists."""

    code = "unknown_token"
    usual_advice = "`ade tokens list` shows those that do"


class UnknownSession(AdeError):
    """No login session with this id is active. The list of sessions shows the active ones."""

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
    """Authentication failed: the name or password, token, or session is not valid. Sign in again."""

    code = "not_authenticated"


class UnsafeBind(AdeError):
    """A server without authentication must be local. Listen on 127.0.0.1, or set http.auth to required."""

    code = "unsafe_bind"


class TooManyRequests(AdeError):
    """The account has exceeded its rate limit. Try again after `retry_after` seconds."""

    code = "too_many_requests"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


# Permissions come from roles, and from nowhere else.


class Permission(StrEnum):
    """What an account can do."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    READ = auto()  # tasks, events, locks, accounts: of everyone, or of the account alone (`reads_everything`)
    READ_PAYLOADS = auto()  # what argument schemas and settings declare as secret, without masks
    ENQUEUE = auto()
    OPERATE = auto()  # cancel, replay, pause, limit, release locks of others
    VOTE = auto()
    ADMINISTER = auto()  # accounts, rules, settings
    BREAK_GLASS = auto()  # run a task in an emergency, without the votes it needs
    WORK = auto()  # claim and finish tasks


class Role(StrEnum):
    """The roles that grant permissions. Any other role name is a label that review rules can require."""

    __hash__ = str.__hash__

    VIEWER = auto()
    OPERATOR = auto()
    REVIEWER = auto()
    ADMIN = auto()
    AGENT = auto()
    WORKER = auto()
    PAYLOAD_READER = "payload-reader"  # a viewer without masks


PERMISSIONS_OF: Mapping[str, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.OPERATOR: frozenset({Permission.READ, Permission.READ_PAYLOADS, Permission.ENQUEUE, Permission.OPERATE}),
    Role.REVIEWER: frozenset({Permission.READ, Permission.VOTE}),
    Role.ADMIN: frozenset(Permission),
    Role.AGENT: frozenset({Permission.READ, Permission.READ_PAYLOADS, Permission.ENQUEUE}),
    Role.WORKER: frozenset({Permission.READ, Permission.READ_PAYLOADS, Permission.ENQUEUE, Permission.WORK}),
    Role.PAYLOAD_READER: frozenset({Permission.READ, Permission.READ_PAYLOADS}),
}
# Accounts with one of these roles read everything. All others, such as agents and workers, can be limited.
READING_ROLES = frozenset({Role.VIEWER, Role.OPERATOR, Role.REVIEWER, Role.ADMIN, Role.PAYLOAD_READER})
FOR_PEOPLE = frozenset({Permission.VOTE, Permission.ADMINISTER, Permission.BREAK_GLASS})  # never of service accounts
ROLES_FOR_PEOPLE = frozenset(role for role, granted in PERMISSIONS_OF.items() if granted & FOR_PEOPLE)


def permissions_of(roles: Iterable[str], *, is_human: bool) -> frozenset[Permission]:
    """Return all permissions that these roles grant together."""
    return _granted(frozenset(roles), is_human)


@lru_cache(maxsize=1_000)  # called for every request, with few combinations
def _granted(roles: frozenset[str], is_human: bool) -> frozenset[Permission]:
    granted = frozenset[Permission]().union(*(PERMISSIONS_OF.get(role, frozenset()) for role in roles))
    return granted if is_human else granted - FOR_PEOPLE


# A snapshot of the accounts, as reviews need them.

APPROVER_ROLES = frozenset({"reviewer", "admin"})


class Account(Struct, frozen=True, kw_only=True):
    """An account, as reviews need it. `person` is the same for all accounts of one human, who counts once."""

    id: str
    person: str = ""  # another account, or any name; empty: the account itself
    roles: frozenset[str] = frozenset()
    is_active: bool = True
    is_human: bool = True  # agents and other programs never vote
    owner: str = ""  # of a service account: the account of the responsible human
    display_name: str = ""
    must_change_password: bool = False  # another account set the password, so that account could vote with it
    password_set_by: str = ""
    password_set_at: int = 0

    def recent_reset_by(self, now: int) -> str:
        """Return who set the password within the last week, if that was another account; otherwise ""."""
        return self.password_set_by if now - self.password_set_at < RESET_SHOWN_MS else ""

    @property
    def is_approver(self) -> bool:
        """Whether it can vote on behalf of others."""
        return not APPROVER_ROLES.isdisjoint(self.roles)

    @property
    def who(self) -> str:
        """The person behind the account."""
        return self.person or self.id


class Directory:
    """Accounts by ID, each with the person at the end of its links. Votes of unknown accounts never count."""

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        self._accounts: dict[str, Account] = {account.id: account for account in accounts}
        links = {account.id: account.person for account in self._accounts.values() if account.person}
        for account, person in links.items():
            if person in links:
                self._accounts[account] = structs.replace(self._accounts[account], person=_end_of(account, links))

    def get(self, account_id: str) -> Account | None:
        return self._accounts.get(account_id)

    def everybody(self) -> Iterable[Account]:
        return self._accounts.values()

    def who(self, account_id: str) -> str:
        """Return the person behind an account; for an unknown account, the account itself."""
        known = self._accounts.get(account_id)
        return account_id if known is None else known.who


def _end_of(account: str, links: Mapping[str, str]) -> str:
    """Return the last name in a chain of links; of a ring, the name that is first in the alphabet."""
    path = [account]
    while (person := links.get(path[-1], path[-1])) not in path:
        path.append(person)
    return min(path[path.index(person) :])


# Login sessions, opened by password or by login link.

SESSION_OPENED, SESSION_ENDED, SESSION_CONFIRMED = "session.opened", "session.ended", "session.reauthenticated"
MAX_SESSION_MS, IDLE_MS = 24 * 3_600_000, 60 * 60_000
FRESH_MS = 5 * 60_000  # how long a password check counts as recent
RESET_SHOWN_MS = 7 * 86_400_000  # how long votes show that another account has set the voter's password
SESSION_TOUCH_MS = 60_000  # `last_active_at` lags by at most this much, so a session can end that much early
_SHOWN = 12


class LoginSession(Struct, frozen=True, kw_only=True):
    """A login session. `id` is the SHA-256 of the secret in the browser."""

    id: str
    account: str
    created_at: int
    last_active_at: int
    reauthenticated_at: int  # when the password was last given; 0: not yet
    idle_ms: int = IDLE_MS
    lasts_ms: int = MAX_SESSION_MS
    ip: str = ""
    user_agent: str = ""
    link_by: str = ""  # the other account that created the login link which opened it

    @property
    def ends_at(self) -> int:
        """When it ends, unless it is used before; never later than its maximum lifetime."""
        return min(self.created_at + self.lasts_ms, self.last_active_at + self.idle_ms)

    @property
    def short_id(self) -> str:
        """A prefix that is enough to tell sessions apart in the log."""
        return self.id[:_SHOWN]

    def is_live(self, now: int) -> bool:
        return now < self.ends_at

    def is_fresh(self, now: int) -> bool:
        """Whether the password was given recently."""
        return now - FRESH_MS <= self.reauthenticated_at <= now

    @property
    def proves_nothing(self) -> bool:
        """Whether another account's link opened it and no password was entered: its creator might be using it."""
        return bool(self.link_by) and not self.reauthenticated_at

    def is_behind(self, now: int) -> bool:
        """Whether `last_active_at` needs an update."""
        return now - self.last_active_at >= min(SESSION_TOUCH_MS, self.idle_ms // 2)


# One-time login links: for the first admin, and for people who have no password or have lost it.

LOGIN_LINK_CREATED, LOGIN_LINK_USED = "login_link.created", "login_link.used"
LASTS_MS = 10 * 60_000


class LoginLink(Struct, frozen=True, kw_only=True):
    """A login link. The secret is not stored; the document is found by the secret's SHA-256, and deleted on use."""

    account: str
    created_at: int
    expires_at: int
    created_by: str = ""  # empty: the server itself, for the first admin

    def is_good(self, now: int) -> bool:
        return now < self.expires_at


def link_address(base_url: str, secret: str) -> str:
    """Return the URL to open in a browser.

    The secret follows #, which no browser sends and no server logs; the page submits it by script.
    """
    return f"{base_url}/login#{secret}"


SYSTEM = "system"  # source of auxiliary tasks such as previews, and actor of automatic approvals


USER_ADDED, USER_CHANGED = "user.added", "user.changed"
# In addition to `user.changed`, for the person behind the account in the payload.
ROLES_CHANGED = "user.roles_changed"
PASSWORD_SET, PASSWORD_CHANGED = "user.password_set_by_other", "user.password_changed"
LOCAL = "local"  # the account of all callers without authentication; see `ade.server.addresses`
_LONGEST_ID, _LONGEST_NAME, _MOST_ROLES = 100, 200, 50
_FORBIDDEN = frozenset("{}:/,\"'`")
_ROLE = re.compile(r"[a-z0-9][a-z0-9._-]{0,49}")


class Reads(StrEnum):
    """What an account without a role that reads everything reads."""

    __hash__ = str.__hash__

    OWN = auto()  # its own tasks, their children, and its queues
    ALL = auto()


class User(Struct, frozen=True, kw_only=True):
    """An account. Its ID is its login name, which never changes and is never reassigned."""

    id: str
    display_name: str = ""
    roles: frozenset[str] = frozenset()
    person: str = ""  # the same for all accounts of one human
    is_active: bool = True
    is_human: bool = True
    owner: str = ""  # of a service account: the account of the responsible human
    password: str | None = None  # its hash
    must_change_password: bool = False  # another account set it, or made the login link through which it was set
    password_set_by: str = ""  # that account, also after the owner has changed the password
    password_set_at: int = 0
    created_at: int = 0
    updated_at: int = 0
    reads: Reads = Reads.ALL  # accounts of versions before read limits keep reading everything; new ones get OWN
    queues: tuple[str, ...] = ()  # the only queues from which its workers claim, and which it reads; empty: any
    names: tuple[str, ...] = ()  # the only tasks that its workers claim; empty: any

    def __repr__(self) -> str:
        return f"User({self.id!r})"  # keeps the password hash out of logs

    @property
    def permissions(self) -> frozenset[Permission]:
        return permissions_of(self.roles, is_human=self.is_human) if self.is_active else frozenset()

    @property
    def is_admin(self) -> bool:
        return self.is_active and self.is_human and Role.ADMIN in self.roles

    @property
    def reads_everything(self) -> bool:
        """Whether it reads objects of all accounts, as far as it has the permission to read."""
        return self.reads is Reads.ALL or not READING_ROLES.isdisjoint(self.roles)


def normal_id(text: str) -> str:
    """Return the account ID for any spelling of a name. Raises InvalidAccount."""
    # Case folding can undo NFKC and vice versa, so both run twice: the result must be stable.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    normal = unicodedata.normalize("NFKC", folded.casefold())
    if not 1 <= len(normal) <= _LONGEST_ID or not normal.isprintable():
        raise InvalidAccount(f"{text[:120]!r} is not a valid account name: use 1 to {_LONGEST_ID} printable characters")
    if any(char.isspace() or char in _FORBIDDEN for char in normal):
        raise InvalidAccount(
            f"{text[:120]!r} is not a valid account name: leave out spaces, quotes, braces, colons, slashes and commas"
        )
    return normal


def normal_roles(names: Iterable[str]) -> frozenset[str]:
    """Return the roles in normal form. Raises InvalidAccount."""
    roles = frozenset(unicodedata.normalize("NFKC", name).casefold() for name in names)
    for role in sorted(roles):
        if not _ROLE.fullmatch(role):
            raise InvalidAccount(
                f"{role[:60]!r} is not a valid role: begin with a letter or digit, then letters, digits, '.', '_' and"
                " '-', at most 50"
            )
    if len(roles) > _MOST_ROLES:
        raise InvalidAccount(f"an account has at most {_MOST_ROLES} roles, not {len(roles)}")
    return roles


def check_user(user: User) -> None:
    """Raise InvalidAccount for an account that is not allowed."""
    if user.id == SYSTEM:
        raise InvalidAccount(f"{SYSTEM} is the name of ADE itself in the event log; choose another name")
    if len(user.display_name) > _LONGEST_NAME or not user.display_name.isprintable():
        raise InvalidAccount(f"a display name has at most {_LONGEST_NAME} printable characters")
    if user.is_human:
        if user.owner:
            raise InvalidAccount(f"{user.id} is a person: only service accounts have an owner")
        return
    if not user.owner:
        raise InvalidAccount(f"{user.id} is a service account: name the responsible person as its owner")
    if user.password is not None:
        raise InvalidAccount(f"{user.id} is a service account: it has tokens, not a password")
    if user.roles & ROLES_FOR_PEOPLE:
        raise InvalidAccount(
            f"{user.id} is a service account: only people can be {' and '.join(sorted(ROLES_FOR_PEOPLE))}"
        )


def account_of(user: User) -> Account:
    """Return what reviews need of a user."""
    return Account(
        id=user.id,
        person=user.person,
        roles=user.roles,
        is_active=user.is_active,
        is_human=user.is_human,
        owner=user.owner,
        display_name=user.display_name,
        must_change_password=user.must_change_password,
        password_set_by=user.password_set_by,
        password_set_at=user.password_set_at,
    )


def directory_of(users: Iterable[User]) -> Directory:
    """Return a directory of these users."""
    return Directory(account_of(user) for user in users)


# Access tokens. A token has at most the permissions of its account and of its creator, and ends before its creator.

TOKEN_CREATED, TOKEN_REVOKED = "token.created", "token.revoked"
USUAL_MS, MAX_TOKEN_MS = 90 * 86_400_000, 366 * 86_400_000
REVOKED_RETENTION_MS = 30 * 86_400_000  # how long lists show a revoked token
TOKEN_TOUCH_MS = 60_000  # `last_used_at` lags by at most this much
LONGEST_LABEL = 100


class Token(Struct, frozen=True, kw_only=True):
    """An access token. The secret is not stored; the document is found by the secret's SHA-256."""

    id: str
    account: str
    scopes: frozenset[Permission]
    created_at: int
    expires_at: int
    label: str = ""  # what it is for
    last_used_at: int | None = None
    revoked_at: int | None = None
    created_by: str = ""  # the account; empty: created on the store itself
    parent: str = ""  # the ID of the token that created it

    def is_good(self, now: int) -> bool:
        return self.revoked_at is None and now < self.expires_at

    def is_behind(self, now: int) -> bool:
        """Whether `last_used_at` needs an update."""
        return self.last_used_at is None or now - self.last_used_at >= TOKEN_TOUCH_MS

    @property
    def kept_until(self) -> int:
        return self.expires_at if self.revoked_at is None else self.revoked_at + REVOKED_RETENTION_MS


# The authenticated caller.


class Caller(Struct, frozen=True, kw_only=True):
    """An account as it is now, and the session or token that authenticated it."""

    user: User
    session: LoginSession | None = None
    token: Token | None = None
    creator: User | None = None  # of the token, if that is another account

    @property
    def permissions(self) -> frozenset[Permission]:
        """The current permissions of the account; through a token, only those in its scopes, and of its creator."""
        granted = self.user.permissions
        if self.token is not None:
            granted &= self.token.scopes
        return granted if self.creator is None else granted & self.creator.permissions

    @property
    def reads_everything(self) -> bool:
        """Whether the caller reads objects of all accounts; through a token, only if its creator does, too."""
        return self.user.reads_everything and (self.creator is None or self.creator.reads_everything)

    def require(self, permission: Permission) -> None:
        """Raise NotPermitted unless the caller has this permission."""
        if permission not in self.permissions:
            through = "" if self.token is None else " through this token"
            raise NotPermitted(
                f"{self.user.id} does not have the permission {permission}{through}; an admin can give a role"
            )
