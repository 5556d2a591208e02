"""Calls: `accounts`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ade.accounts.model import Permission, Reads, Token
    from ade.accounts.views import (
        CreatedLoginLink,
        CreatedToken,
        CurrentAccount,
        EndedSessions,
        SessionView,
        SignedIn,
        UserView,
    )
    from ade.common.calls import Call
    from ade.server.pagination import Page, VersionedRecord


class AccountsCalls(Section):
    """Methods of the client: `accounts`."""

    def list_users(
        self, *, is_active: bool | None = None, is_human: bool | None = None, role: str | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[UserView]]:
        """Accounts of people and programs."""
        from ade.accounts.api import ListUsers
        from ade.accounts.views import UserView
        from ade.server.pagination import Page

        query = ListUsers(is_active=is_active, is_human=is_human, role=role, cursor=cursor, limit=limit)
        return self._call("list_users", Page[UserView], query=query)

    def create_user(
        self, *, id: str, display_name: str = "", roles: Sequence[str] = (), person: str = "", is_human: bool = True,
        owner: str = "", reads: Reads | None = None, queues: Sequence[str] = (), names: Sequence[str] = (),
        password: str | None = None,
    ) -> Call[VersionedRecord[UserView]]:
        """Create an account, in a session with a recent password check."""
        from ade.accounts.api import NewUser
        from ade.accounts.model import Reads
        from ade.accounts.views import UserView
        from ade.server.pagination import VersionedRecord

        body = NewUser(
            id=id, display_name=display_name, roles=list(roles), person=person, is_human=is_human, owner=owner,
            reads=Reads.OWN if reads is None else reads, queues=list(queues), names=list(names), password=password,
        )
        return self._call("create_user", VersionedRecord[UserView], body=body)

    def get_user(self, account: str) -> Call[VersionedRecord[UserView]]:
        """One account."""
        from ade.accounts.views import UserView
        from ade.server.pagination import VersionedRecord

        return self._call("get_user", VersionedRecord[UserView], account)

    def change_user(
        self, account: str, *, display_name: str | None = None, roles: list[str] | None = None,
        more_roles: Sequence[str] = (), fewer_roles: Sequence[str] = (), person: str | None = None,
        owner: str | None = None, is_active: bool | None = None, reads: Reads | None = None,
        queues: list[str] | None = None, names: list[str] | None = None, if_match: int | None,
        request_key: str | None = None,
    ) -> Call[VersionedRecord[UserView]]:
        """Change name, roles, owner, what it reads and claims, or whether it is active."""
        from ade.accounts.api import ChangeUser
        from ade.accounts.views import UserView
        from ade.server.pagination import VersionedRecord

        body = ChangeUser(
            display_name=display_name, roles=roles, more_roles=list(more_roles), fewer_roles=list(fewer_roles),
            person=person, owner=owner, is_active=is_active, reads=reads, queues=queues, names=names,
        )
        return self._call(
            "change_user", VersionedRecord[UserView], account, body=body, if_match=if_match, key=request_key,
        )

    def set_user_password(self, account: str, *, password: str | None = None, remove: bool = False) -> Call[UserView]:
        """Set a new password."""
        from ade.accounts.api import SetPassword
        from ade.accounts.views import UserView

        body = SetPassword(password=password, remove=remove)
        return self._call("set_user_password", UserView, account, body=body)

    def end_user_sessions(self, account: str) -> Call[EndedSessions]:
        """End all its sessions."""
        from ade.accounts.views import EndedSessions

        return self._call("end_user_sessions", EndedSessions, account)

    def create_login_link(self, account: str) -> Call[CreatedLoginLink]:
        """Create a one-time login link."""
        from ade.accounts.views import CreatedLoginLink

        return self._call("create_login_link", CreatedLoginLink, account)

    def list_tokens(
        self, *, account: str | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Token]]:
        """Access tokens, without their secrets."""
        from ade.accounts.api import ListTokens
        from ade.accounts.model import Token
        from ade.server.pagination import Page

        query = ListTokens(account=account, cursor=cursor, limit=limit)
        return self._call("list_tokens", Page[Token], query=query)

    def create_token(
        self, *, account: str, scopes: frozenset[Permission] | None = None, seconds: float = 7776000.0,
        label: str = "",
    ) -> Call[CreatedToken]:
        """Create an access token."""
        from ade.accounts.api import NewToken
        from ade.accounts.views import CreatedToken

        body = NewToken(account=account, scopes=scopes, seconds=seconds, label=label)
        return self._call("create_token", CreatedToken, body=body)

    def get_token(self, token_id: str) -> Call[Token]:
        """One access token."""
        from ade.accounts.model import Token

        return self._call("get_token", Token, token_id)

    def revoke_token(self, token_id: str) -> Call[Token]:
        """Revoke an access token."""
        from ade.accounts.model import Token

        return self._call("revoke_token", Token, token_id)

    def get_me(self) -> Call[CurrentAccount]:
        """Who one is, and what one may do."""
        from ade.accounts.views import CurrentAccount

        return self._call("get_me", CurrentAccount)

    def list_sessions(
        self, *, account: str | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[SessionView]]:
        """Live login sessions."""
        from ade.accounts.api import ListSessions
        from ade.accounts.views import SessionView
        from ade.server.pagination import Page

        query = ListSessions(account=account, cursor=cursor, limit=limit)
        return self._call("list_sessions", Page[SessionView], query=query)

    def sign_in(self, *, name: str, password: str) -> Call[SignedIn]:
        """Sign in with name and password."""
        from ade.accounts.api import SignIn
        from ade.accounts.views import SignedIn

        body = SignIn(name=name, password=password)
        return self._call("sign_in", SignedIn, body=body)

    def use_login_link(self, *, secret: str) -> Call[SignedIn]:
        """Sign in with the one-time link."""
        from ade.accounts.api import UseLoginLink
        from ade.accounts.views import SignedIn

        body = UseLoginLink(secret=secret)
        return self._call("use_login_link", SignedIn, body=body)

    def confirm_session(self, *, password: str) -> Call[SessionView]:
        """Give the password once more."""
        from ade.accounts.api import ConfirmSession
        from ade.accounts.views import SessionView

        body = ConfirmSession(password=password)
        return self._call("confirm_session", SessionView, body=body)

    def sign_out(self) -> Call[None]:
        """End this session."""
        return self._call("sign_out", type(None))

    def end_session(self, session_id: str) -> Call[None]:
        """End another session of one's own."""
        return self._call("end_session", type(None), session_id)

    def sign_out_everywhere(self) -> Call[EndedSessions]:
        """End all sessions of one's own."""
        from ade.accounts.views import EndedSessions

        return self._call("sign_out_everywhere", EndedSessions)

    def change_own_password(self, *, new: str, old: str | None = None) -> Call[SignedIn]:
        """Change one's own password."""
        from ade.accounts.api import ChangeOwnPassword
        from ade.accounts.views import SignedIn

        body = ChangeOwnPassword(new=new, old=old)
        return self._call("change_own_password", SignedIn, body=body)

    def create_own_token(
        self, *, scopes: frozenset[Permission] | None = None, seconds: float = 7776000.0, label: str = "",
    ) -> Call[CreatedToken]:
        """Create an access token for yourself."""
        from ade.accounts.api import NewOwnToken
        from ade.accounts.views import CreatedToken

        body = NewOwnToken(scopes=scopes, seconds=seconds, label=label)
        return self._call("create_own_token", CreatedToken, body=body)

    def revoke_own_token(self, token_id: str) -> Call[Token]:
        """Revoke an access token of one's own."""
        from ade.accounts.model import Token

        return self._call("revoke_own_token", Token, token_id)
