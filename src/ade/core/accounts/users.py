"""Users: the accounts of people, and of programs that somebody answers for."""

import re
import unicodedata
from collections.abc import Iterable

from msgspec import Struct

from ade.core.accounts.errors import InvalidAccount
from ade.core.accounts.permissions import ROLES_FOR_PEOPLE, Permission, Role, permissions_of
from ade.core.approvals.people import Account, Directory
from ade.core.records import SYSTEM

USER_ADDED, USER_CHANGED = "user.added", "user.changed"
LOCAL = "local"  # the account of whoever asks where nobody is asked who he is; see `ade.core.web.binding`
_LONGEST_ID, _LONGEST_NAME, _MOST_ROLES = 100, 200, 50
_FORBIDDEN = frozenset("{}:/,\"'`")
_ROLE = re.compile(r"[a-z0-9][a-z0-9._-]{0,49}")


class User(Struct, frozen=True, kw_only=True):
    """An account. Its id is its login name, which never changes and is never given to anybody else."""

    id: str
    display_name: str = ""
    roles: frozenset[str] = frozenset()
    person: str = ""  # the same for all accounts of one human
    is_active: bool = True
    is_human: bool = True
    owner: str = ""  # of a program: the account of the human who answers for it
    password: str | None = None  # its hash
    created_at: int = 0
    updated_at: int = 0

    def __repr__(self) -> str:
        return f"User({self.id!r})"  # nothing of the password in a log

    @property
    def permissions(self) -> frozenset[Permission]:
        return permissions_of(self.roles, is_human=self.is_human) if self.is_active else frozenset()

    @property
    def is_admin(self) -> bool:
        return self.is_active and self.is_human and Role.ADMIN in self.roles


def normal_id(text: str) -> str:
    """The id that a name stands for, however it is spelled. Raises InvalidAccount."""
    # Folding can undo what NFKC has done, and the other way round: what this answers must stay as it is.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    normal = unicodedata.normalize("NFKC", folded.casefold())
    if not 1 <= len(normal) <= _LONGEST_ID or not normal.isprintable():
        raise InvalidAccount(f"{text[:120]!r} is no account name: use 1 to {_LONGEST_ID} printable characters")
    if any(char.isspace() or char in _FORBIDDEN for char in normal):
        raise InvalidAccount(
            f"{text[:120]!r} is no account name: leave out spaces, quotes, braces, colons, slashes and commas"
        )
    return normal


def normal_roles(names: Iterable[str]) -> frozenset[str]:
    """Roles as they are kept. Raises InvalidAccount."""
    roles = frozenset(unicodedata.normalize("NFKC", name).casefold() for name in names)
    for role in sorted(roles):
        if not _ROLE.fullmatch(role):
            raise InvalidAccount(
                f"{role[:60]!r} is no role: begin with a letter or digit, then letters, digits, '.', '_' and '-',"
                " at most 50"
            )
    if len(roles) > _MOST_ROLES:
        raise InvalidAccount(f"an account has at most {_MOST_ROLES} roles, not {len(roles)}")
    return roles


def check_user(user: User) -> None:
    """Raise InvalidAccount for one that there must not be."""
    if user.id == SYSTEM:
        raise InvalidAccount(f"{SYSTEM} is what ADE calls itself in its log; take another name")
    if len(user.display_name) > _LONGEST_NAME or not user.display_name.isprintable():
        raise InvalidAccount(f"a display name has at most {_LONGEST_NAME} printable characters")
    if user.is_human:
        if user.owner:
            raise InvalidAccount(f"{user.id} is a person: only programs have an owner")
        return
    if not user.owner:
        raise InvalidAccount(f"{user.id} is a program: say who answers for it, with an owner")
    if user.password is not None:
        raise InvalidAccount(f"{user.id} is a program: it has tokens, and no password")
    if user.roles & ROLES_FOR_PEOPLE:
        raise InvalidAccount(f"{user.id} is a program: only people are {' and '.join(sorted(ROLES_FOR_PEOPLE))}")


def account_of(user: User) -> Account:
    """What reviews need to know of a user."""
    return Account(
        id=user.id,
        person=user.person,
        roles=user.roles,
        is_active=user.is_active,
        is_human=user.is_human,
        owner=user.owner,
    )


def directory_of(users: Iterable[User]) -> Directory:
    return Directory(account_of(user) for user in users)
