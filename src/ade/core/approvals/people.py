"""The people and programs that accounts stand for, as they were at one moment."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

APPROVER_ROLES = frozenset({"reviewer", "admin"})


class Account(Struct, frozen=True, kw_only=True):
    """`person` is the same for all accounts of one human: whoever has two counts once."""

    id: str
    person: str = ""  # empty: nobody else's
    roles: frozenset[str] = frozenset()
    is_active: bool = True
    is_human: bool = True  # agents and other programs never count
    owner: str = ""  # of a program: the account of the human who answers for it

    @property
    def is_approver(self) -> bool:
        """Whether it may answer in somebody else's place."""
        return not APPROVER_ROLES.isdisjoint(self.roles)

    @property
    def who(self) -> str:
        return self.person or self.id


class Directory:
    """Accounts by id. Who is not known counts for nothing."""

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        self._accounts: Mapping[str, Account] = {account.id: account for account in accounts}

    def get(self, account_id: str) -> Account | None:
        return self._accounts.get(account_id)

    def everybody(self) -> Iterable[Account]:
        return self._accounts.values()

    def who(self, account_id: str) -> str:
        """The person behind an account; of one that is gone, the account itself."""
        known = self._accounts.get(account_id)
        return account_id if known is None else known.who
