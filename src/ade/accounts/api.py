"""HTTP operations on accounts and access tokens, with the forms of their requests.

The secret of a token is returned once, when it is created, and is not stored. Admins create tokens for service
accounts. The permissions of people (vote, administer, break-glass) are not available for tokens of another person, so
that no one can approve in the name of others. Nor can a token have permissions that its creator lacks. People create
their own tokens with `create_own_token`. Changes that grant access to an account (a new account, a password, roles, a
login link, a token) require a login session with a recent password check, so a stolen token cannot gain permissions.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, field, structs

from ade.accounts import sessions, tokens, users
from ade.accounts.authorization import changes_access, check_grant, check_granted, check_owner, is_grant
from ade.accounts.model import (
    FOR_PEOPLE,
    Caller,
    InvalidAccount,
    InvalidToken,
    NotAuthenticated,
    Permission,
    Reads,
    Token,
    UnknownAccount,
    UnknownToken,
    User,
    normal_roles,
)
from ade.accounts.views import CreatedLoginLink, CreatedToken, EndedSessions, UserView, view_user
from ade.errors import NotPermitted
from ade.server.context import RequestContext, Services, account_id, acting, check_own, cut, require_fresh_session
from ade.server.operation import AuthLevel, ETagUse, ReadRule, RouteAccess, TrafficClass, operation
from ade.server.pagination import Page, VersionedRecord
from ade.server.request_types import NEW_PASSWORD, Account, Form, PageSize, Password, RoleName, Secret, SecretForm

# Request forms.


Roles = Annotated[list[Annotated[RoleName, Meta(min_length=1, max_length=100)]], Meta(max_length=50)]
_Shown = Annotated[str, Meta(max_length=200)]
_Other = Annotated[str, Meta(max_length=200)]  # another account; empty: none
_Label = Annotated[str, Meta(max_length=100)]
Bindings = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=100)]
_TokenSeconds = Annotated[float, Meta(ge=1, le=366 * 86_400.0)]
_USUAL_S = 90 * 86_400.0


class ListUsers(Form):
    """Filter and page of the accounts."""

    is_active: bool | None = None
    is_human: bool | None = None
    role: Annotated[str, Meta(max_length=100)] | None = None
    cursor: str | None = None
    limit: PageSize = 50


class NewUser(SecretForm, kw_only=True):
    """A new account. Its name is permanent. Roles without permissions are labels that review rules can require."""

    id: Account
    display_name: _Shown = ""
    roles: Roles = field(default_factory=list)
    person: _Other = ""  # another account of the same human: the two count once
    is_human: bool = True  # service accounts never vote; they have tokens and an owner
    owner: _Other = ""
    reads: Reads = Reads.OWN  # of an account whose roles do not read everything, such as agents and workers
    queues: Bindings = field(default_factory=list)  # the only queues from which its workers claim; empty: any
    names: Bindings = field(default_factory=list)  # the only tasks that its workers claim; empty: any
    password: Annotated[Password, NEW_PASSWORD] | None = None


class ChangeUser(Form):
    """Changes of an account; omitted fields stay as they are."""

    display_name: _Shown | None = None
    roles: Roles | None = None  # replaces all roles
    more_roles: Roles = field(default_factory=list)
    fewer_roles: Roles = field(default_factory=list)
    person: _Other | None = None
    owner: _Other | None = None
    is_active: bool | None = None
    reads: Reads | None = None
    queues: Bindings | None = None  # replaces all of them; empty: any queue
    names: Bindings | None = None  # replaces all of them; empty: any task


class SetPassword(SecretForm):
    """A new password, or its removal. All sessions of the account end."""

    password: Annotated[Password, NEW_PASSWORD] | None = None
    remove: bool = False  # signing in with a password is no longer possible


class ListTokens(Form):
    """Filter and page of the access tokens."""

    account: Account | None = None
    cursor: str | None = None
    limit: PageSize = 50


class NewOwnToken(Form):
    """A new token of the caller's own account."""

    scopes: frozenset[Permission] | None = None  # default: all permissions of the account
    seconds: _TokenSeconds = _USUAL_S  # how long it is valid
    label: _Label = ""  # what it is for


class NewToken(Form, kw_only=True):
    """A new token, created by an admin."""

    account: Account
    scopes: frozenset[Permission] | None = None
    seconds: _TokenSeconds = _USUAL_S
    label: _Label = ""


class ListSessions(Form):
    """Filter and page of the login sessions."""

    account: Account | None = None
    cursor: str | None = None
    limit: PageSize = 50


class SignIn(SecretForm, kw_only=True):
    """Account name and password."""

    json_names: ClassVar[Mapping[str, str]] = {"name": "account"}

    name: Account
    password: Password


class UseLoginLink(SecretForm, kw_only=True):
    """The secret of a one-time login link."""

    secret: Secret  # the part of the link after #


class ConfirmSession(SecretForm, kw_only=True):
    """The password of the account, given again."""

    password: Password


class ChangeOwnPassword(SecretForm, kw_only=True):
    """The new password, and the old one if there is one."""

    new: Annotated[Password, NEW_PASSWORD]
    old: Password | None = None  # not needed after a login link, if there is none yet


@operation("GET /tokens", reads=ReadRule.OWN, permission=Permission.READ, others=Permission.ADMINISTER)
async def list_tokens(services: Services, request: RequestContext, query: ListTokens) -> Page[Token]:
    """Access tokens, without their secrets. The oldest first; revoked ones are shown for 30 days. Callers see their own
    tokens and those of their programs."""
    account = None if query.account is None else account_id(query.account)
    if request.access is RouteAccess.OWN and account is not None:
        unknown = UnknownAccount(f"no account {account!r} exists", advice=UnknownAccount.usual_advice)
        await check_own(services, request, account, unknown)
    known = await tokens.list_tokens(services.stores, account)
    if request.access is RouteAccess.OWN and account is None:
        own = acting(request)
        mine = {own, *(user.id for user in await users.list_users(services.stores) if user.owner == own)}
        known = [token for token in known if token.account in mine]
    return cut("tokens", query, known)


@operation("POST /tokens", permission=Permission.ADMINISTER, takes_key=False)
async def create_token(services: Services, request: RequestContext, body: NewToken) -> CreatedToken:
    """Create an access token. Its secret is shown only once. For admins, in a session with a recent password check. A
    token has at most the permissions of its account and of its creator, and ends when its creator is deactivated."""
    require_fresh_session(services, request)
    user = await users.get_user(services.stores, account_id(body.account))
    scopes = body.scopes
    if request.caller is not None:
        scopes = requested_scopes(request.caller, user, scopes)
    return await _created(services, request, user.id, scopes, body.seconds, body.label)


def requested_scopes(caller: Caller, user: User, requested: frozenset[Permission] | None) -> frozenset[Permission]:
    """Return the scopes that this caller can give to a token of this user. Raises NotPermitted and InvalidToken."""
    possible = user.permissions - FOR_PEOPLE
    if user.id == caller.user.id:
        possible = user.permissions & caller.permissions  # a token cannot create one with more permissions
    if requested is None:
        check_granted(caller, user.id, possible)
        return possible
    beyond = (requested & user.permissions) - possible
    if beyond:
        raise NotPermitted(
            f"{caller.user.id} cannot create a token of {user.id} with the permission {', '.join(sorted(beyond))};"
            f" {user.id} can create it in their own session"
        )
    if not requested:
        raise InvalidToken("a token needs at least one scope; name some, or omit the field for all of them")
    check_granted(caller, user.id, requested & user.permissions)
    return requested


@operation("GET /tokens/{token_id}", reads=ReadRule.OWN, permission=Permission.READ, others=Permission.ADMINISTER)
async def get_token(services: Services, request: RequestContext, token_id: str) -> Token:
    """One access token. A token of another account is treated as one that does not exist."""
    found = [token for token in await tokens.list_tokens(services.stores) if token.id == token_id]
    if not found:
        raise _unknown(token_id)
    if request.access is RouteAccess.OWN:
        await check_own(services, request, found[0].account, _unknown(token_id))
    return found[0]


@operation("DELETE /tokens/{token_id}", permission=Permission.ADMINISTER)
async def revoke_token(services: Services, request: RequestContext, token_id: str) -> Token:
    """Revoke an access token. It and the tokens that were created with it are rejected from now on; revoking it again
    has no effect."""
    return await tokens.revoke_token(services.stores, token_id, actor=acting(request))


@operation("POST /me/tokens", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN, takes_key=False)
async def create_own_token(services: Services, request: RequestContext, body: NewOwnToken) -> CreatedToken:
    """Create an access token for yourself. Its secret is shown only once. Requires a session with a recent password
    check (`http.fresh_session_s`)."""
    if request.caller is None:
        raise NotAuthenticated(
            "this requires a login session", advice="`ade tokens create` creates a token without one"
        )
    require_fresh_session(services, request)
    scopes = requested_scopes(request.caller, request.caller.user, body.scopes)
    return await _created(services, request, request.caller.user.id, scopes, body.seconds, body.label)


async def _created(
    services: Services,
    request: RequestContext,
    account: str,
    scopes: frozenset[Permission] | None,
    seconds: float,
    label: str,
) -> CreatedToken:
    secret, token = await tokens.create_token(
        services.stores,
        account,
        scopes=scopes,
        lasts_ms=round(seconds * 1000),
        label=label,
        actor=acting(request),
        creator=request.caller,
        login=request.login,
    )
    return CreatedToken(
        id=token.id,
        account=token.account,
        scopes=token.scopes,
        created_at=token.created_at,
        expires_at=token.expires_at,
        secret=secret,
        label=token.label,
    )


@operation("DELETE /me/tokens/{token_id}", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN)
async def revoke_own_token(services: Services, request: RequestContext, token_id: str) -> Token:
    """Revoke an access token of one's own. Also a token of a program that the caller owns."""
    await get_token(services, request, token_id)
    return await tokens.revoke_token(services.stores, token_id, actor=acting(request))


def _unknown(token_id: str) -> UnknownToken:
    return UnknownToken(f"no access token {token_id[:60]!r} exists", advice=UnknownToken.usual_advice)


# Accounts of people and programs: created, changed, and deactivated by admins, never deleted.


@operation("GET /users", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_users(services: Services, request: RequestContext, query: ListUsers) -> Page[UserView]:
    """Accounts of people and programs. By name, including deactivated ones. A limited account sees itself and its
    owner."""
    known = [user for user in await users.list_users(services.stores) if _is_meant(user, query)]
    if (shown := _shown(request)) is not None:
        known = [user for user in known if user.id in shown]
    return cut("users", query, [view_user(user) for user in sorted(known, key=lambda user: user.id)])


def _shown(request: RequestContext) -> frozenset[str] | None:
    """Return the accounts that a limited account sees; None: all of them."""
    caller = request.caller
    return None if caller is None or caller.reads_everything else frozenset({caller.user.id, caller.user.owner})


def _is_meant(user: User, query: ListUsers) -> bool:
    return (
        query.is_active in (None, user.is_active)
        and query.is_human in (None, user.is_human)
        and (query.role is None or query.role.casefold() in user.roles)
    )


@operation("POST /users", permission=Permission.ADMINISTER, takes_key=False, tag=ETagUse.ANSWERED)
async def create_user(services: Services, request: RequestContext, body: NewUser) -> VersionedRecord[UserView]:
    """Create an account, in a session with a recent password check. A name is permanent: an account can be deactivated,
    but its name is never reassigned. If another account set the password, the account can vote after its owner has
    changed it. There is no Idempotency-Key, because a stored request would contain a fast hash of the password; a
    second request is rejected because the name is taken."""
    require_fresh_session(services, request)
    user = User(
        id=body.id,
        display_name=body.display_name,
        roles=normal_roles(body.roles),
        person=body.person,
        is_human=body.is_human,
        owner=body.owner,
        queues=tuple(body.queues),
        names=tuple(body.names),
    )
    if request.caller is not None:
        check_grant(request.caller, user)
    made = await users.add_user(
        services.stores,
        user,
        password=body.password,
        reads=body.reads,
        actor=acting(request),
        login=request.login,
    )
    return await get_user(services, request, made.id)


@operation("GET /users/{account}", reads=ReadRule.SCOPED, permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_user(services: Services, request: RequestContext, account: str) -> VersionedRecord[UserView]:
    """One account. Its version also changes when it signs in or gets a token; a client that gets a 412 then reads it
    again."""
    wanted = account_id(account)
    if (shown := _shown(request)) is not None and wanted not in shown:
        raise UnknownAccount(f"no account {account[:100]!r} exists", advice=UnknownAccount.usual_advice)
    stored = await users.find(services.stores, wanted)
    return VersionedRecord(view_user(stored.record), stored.version)


@operation("PATCH /users/{account}", permission=Permission.ADMINISTER, tag=ETagUse.REQUIRED)
async def change_user(
    services: Services, request: RequestContext, account: str, body: ChangeUser
) -> VersionedRecord[UserView]:
    """Change name, roles, owner, what it reads and claims, or whether it is active. It takes effect with the next
    request of the account. A deactivated account loses all sessions, its tokens, and those it created for others.
    Except for a new display name and a deactivation, this requires a session with a recent password check."""
    stored = await users.find(services.stores, account_id(account))
    seen = request.expected_version(stored.version)
    given_fields = {name: value for name, value in structs.asdict(body).items() if value is not None}
    sets = {
        name: frozenset(given_fields.pop(name))
        for name in ("roles", "more_roles", "fewer_roles")
        if name in given_fields
    }
    given_fields |= {name: tuple(given_fields[name]) for name in ("queues", "names") if name in given_fields}
    changes = structs.replace(users.UserChanges(roles=UNSET), **given_fields, **sets)
    after = users.changed(stored.record, changes)
    if changes_access(stored.record, after):
        require_fresh_session(services, request)
    if request.caller is not None and is_grant(stored.record, after):
        check_owner(request.caller, stored.record, after)
        check_grant(request.caller, after)
    await users.change_user(
        services.stores, stored.record.id, changes, actor=acting(request), login=request.login, seen=seen
    )
    return await get_user(services, request, stored.record.id)


@operation("PUT /users/{account}/password", permission=Permission.ADMINISTER)
async def set_user_password(services: Services, request: RequestContext, account: str, body: SetPassword) -> UserView:
    """Set a new password. Requires a session with a recent password check. All login sessions of the account end; its
    tokens stay valid. The account cannot vote until its owner has changed a password that another account set."""
    require_fresh_session(services, request)
    if (body.password is None) == (not body.remove):
        raise InvalidAccount("give a new password, or set `remove` to remove the current one")
    user = (await users.find(services.stores, account_id(account))).record
    if request.caller is not None and body.password is not None:
        check_grant(request.caller, user)
    changed = await users.set_password(
        services.stores, user.id, body.password, actor=acting(request), login=request.login
    )
    return view_user(changed)


@operation("DELETE /users/{account}/sessions", permission=Permission.ADMINISTER)
async def end_user_sessions(services: Services, request: RequestContext, account: str) -> EndedSessions:
    """End all its sessions."""
    user = (await users.find(services.stores, account_id(account))).record
    ended = await sessions.end_all(services.stores, user.id, actor=acting(request))
    return EndedSessions(account=user.id, ended=ended)


@operation("POST /users/{account}/login-link", permission=Permission.ADMINISTER, takes_key=False)
async def create_login_link(services: Services, request: RequestContext, account: str) -> CreatedLoginLink:
    """Create a one-time login link. For a person who has no password or has lost it: valid once, for 10 minutes.
    Requires a session with a recent password check. To vote, the person must enter, or set and change, a password."""
    require_fresh_session(services, request)
    user = (await users.find(services.stores, account_id(account))).record
    if request.caller is not None:
        check_grant(request.caller, user)
    made = await sessions.create_link(services.stores, user.id, actor=acting(request), login=request.login)
    return CreatedLoginLink(account=made.link.account, secret=made.secret, expires_at=made.link.expires_at)
