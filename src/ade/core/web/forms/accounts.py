"""What is said about accounts, access tokens and login sessions."""

from typing import Annotated

from msgspec import Meta, field

from ade.core.accounts.permissions import Permission
from ade.core.web.forms.approvals import Account
from ade.core.web.forms.secret import Password, Secret, SecretForm
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import NEW_PASSWORD, RoleName

Roles = Annotated[list[Annotated[RoleName, Meta(min_length=1, max_length=100)]], Meta(max_length=50)]
_Shown = Annotated[str, Meta(max_length=200)]
_Other = Annotated[str, Meta(max_length=200)]  # another account; empty: none
_Label = Annotated[str, Meta(max_length=100)]
_TokenSeconds = Annotated[float, Meta(ge=1, le=366 * 86_400.0)]
_USUAL_S = 90 * 86_400.0


class ListUsers(Form):
    is_active: bool | None = None
    is_human: bool | None = None
    role: Annotated[str, Meta(max_length=100)] | None = None
    cursor: str | None = None
    limit: PageSize = 50


class NewUser(SecretForm, kw_only=True):
    """Its name is for good. Roles that give no permission are marks that review rules can ask for."""

    id: Account
    display_name: _Shown = ""
    roles: Roles = field(default_factory=list)
    person: _Other = ""  # another account of the same human: the two count once
    is_human: bool = True  # programs never vote, and have tokens and an owner
    owner: _Other = ""
    password: Annotated[Password, NEW_PASSWORD] | None = None


class ChangeUser(Form):
    """What is not said stays."""

    display_name: _Shown | None = None
    roles: Roles | None = None  # all of them
    more_roles: Roles = field(default_factory=list)
    fewer_roles: Roles = field(default_factory=list)
    person: _Other | None = None
    owner: _Other | None = None
    is_active: bool | None = None


class SetPassword(SecretForm):
    """One of the two. All sessions of the account end."""

    password: Annotated[Password, NEW_PASSWORD] | None = None
    remove: bool = False  # nobody can sign in with a password any more


class ListTokens(Form):
    account: Account | None = None
    cursor: str | None = None
    limit: PageSize = 50


class NewOwnToken(Form):
    scopes: frozenset[Permission] | None = None  # of what the account may do; otherwise all of that
    seconds: _TokenSeconds = _USUAL_S  # how long it is good for
    label: _Label = ""  # what it is for


class NewToken(Form, kw_only=True):
    account: Account
    scopes: frozenset[Permission] | None = None
    seconds: _TokenSeconds = _USUAL_S
    label: _Label = ""


class ListSessions(Form):
    account: Account | None = None
    cursor: str | None = None
    limit: PageSize = 50


class SignIn(SecretForm, kw_only=True):
    name: Account
    password: Password


class UseLoginLink(SecretForm, kw_only=True):
    secret: Secret  # what stands behind # in the link


class ConfirmSession(SecretForm, kw_only=True):
    password: Password


class ChangeOwnPassword(SecretForm, kw_only=True):
    new: Annotated[Password, NEW_PASSWORD]
    old: Password | None = None  # not asked of who comes from a login link and has none yet
