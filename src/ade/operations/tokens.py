"""Access tokens. Their secret is answered once, when they are made, and is kept nowhere.

Admins make tokens for programs. What only people may do (vote, administer, break the glass) no token of another person
can be made for: nobody shall approve in the name of others. Nor is one made for what its maker may not do. A person
makes tokens of his own with `create_own_token`, in a session whose password was given just now: a token that got into
wrong hands makes no further ones.
"""

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import InvalidToken, NotAuthenticated, UnknownAccount, UnknownToken
from ade.core.accounts.giving import check_given
from ade.core.accounts.permissions import FOR_PEOPLE, Permission
from ade.core.accounts.tokens import Token
from ade.core.accounts.users import User
from ade.core.approvals.refusals import NotPermitted, ReauthenticationNeeded
from ade.core.web.access import Access
from ade.core.web.forms.accounts import ListTokens, NewOwnToken, NewToken
from ade.governance.directory import tokens as use_cases
from ade.governance.directory.users import get_user, list_users
from ade.insight.accounts import CreatedToken
from ade.operations.acting import account_id, acting
from ade.operations.kit import Asked, Office, Page
from ade.operations.owning import check_own
from ade.operations.paging import cut


async def list_tokens(office: Office, asked: Asked, query: ListTokens) -> Page[Token]:
    """The oldest first; those that were revoked are shown for 30 days. One's own, and those of one's programs."""
    account = None if query.account is None else account_id(query.account)
    if asked.access is Access.OWN and account is not None:
        unknown = UnknownAccount(f"no account {account!r} exists", advice=UnknownAccount.usual_advice)
        await check_own(office, asked, account, unknown)
    known = await use_cases.list_tokens(office.stores, account)
    if asked.access is Access.OWN and account is None:
        own = acting(asked)
        mine = {own, *(user.id for user in await list_users(office.stores) if user.owner == own)}
        known = [token for token in known if token.account in mine]
    return cut("tokens", query, known)


async def get_token(office: Office, asked: Asked, token_id: str) -> Token:
    """A foreign one is answered as one that does not exist."""
    found = [token for token in await use_cases.list_tokens(office.stores) if token.id == token_id]
    if not found:
        raise _unknown(token_id)
    if asked.access is Access.OWN:
        await check_own(office, asked, found[0].account, _unknown(token_id))
    return found[0]


async def create_token(office: Office, asked: Asked, body: NewToken) -> CreatedToken:
    """By an admin. It may do at most what its account may do."""
    user = await get_user(office.stores, account_id(body.account))
    scopes = body.scopes
    if asked.caller is not None:
        scopes = given_scopes(asked.caller, user, scopes)
    return await _created(office, asked, user.id, scopes, body.seconds, body.label)


def given_scopes(caller: Caller, user: User, wanted: frozenset[Permission] | None) -> frozenset[Permission]:
    """What this caller may give. Raises NotPermitted and InvalidToken."""
    possible = user.permissions - FOR_PEOPLE
    if user.id == caller.user.id:
        possible = user.permissions & caller.permissions  # a token makes none that may do more than itself
    if wanted is None:
        check_given(caller, user.id, possible)
        return possible
    beyond = (wanted & user.permissions) - possible
    if beyond:
        raise NotPermitted(
            f"{caller.user.id} cannot make a token of {user.id} with the permission {', '.join(sorted(beyond))};"
            f" {user.id} makes it in a session of his own"
        )
    if not wanted:
        raise InvalidToken("a token without any scope is good for nothing; name some, or leave them out")
    check_given(caller, user.id, wanted & user.permissions)
    return wanted


async def create_own_token(office: Office, asked: Asked, body: NewOwnToken) -> CreatedToken:
    """Takes a session whose password was given within the last five minutes."""
    session = None if asked.caller is None else asked.caller.session
    if asked.caller is None or session is None:
        raise NotAuthenticated("this takes a login session", advice="`ade tokens create` makes a token without one")
    if not session.is_fresh(office.stores.clock.now()):
        raise ReauthenticationNeeded("a new token takes a password given within the last five minutes; give it again")
    scopes = given_scopes(asked.caller, asked.caller.user, body.scopes)
    return await _created(office, asked, asked.caller.user.id, scopes, body.seconds, body.label)


async def _created(
    office: Office, asked: Asked, account: str, scopes: frozenset[Permission] | None, seconds: float, label: str
) -> CreatedToken:
    secret, token = await use_cases.create_token(
        office.stores, account, scopes=scopes, lasts_ms=round(seconds * 1000), label=label, actor=acting(asked)
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


async def revoke_token(office: Office, asked: Asked, token_id: str) -> Token:
    """From now on it is refused; again it changes nothing."""
    return await use_cases.revoke_token(office.stores, token_id, actor=acting(asked))


async def revoke_own_token(office: Office, asked: Asked, token_id: str) -> Token:
    """One's own, or one of a program that one answers for."""
    await get_token(office, asked, token_id)
    return await use_cases.revoke_token(office.stores, token_id, actor=acting(asked))


def _unknown(token_id: str) -> UnknownToken:
    return UnknownToken(f"no access token {token_id[:60]!r} exists", advice=UnknownToken.usual_advice)
