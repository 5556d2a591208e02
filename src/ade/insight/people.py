"""Everybody who could have a say, read for those who only look."""

import msgspec

from ade.core.accounts.users import User, directory_of
from ade.core.approvals.delegations import Delegation
from ade.core.approvals.opening import People
from ade.ports import Stores

_user = msgspec.json.Decoder(User).decode
_delegation = msgspec.json.Decoder(Delegation).decode


async def load_people(stores: Stores) -> People:
    """One after the other: a store that was opened to be looked at lets nobody wait."""
    users = [_user(found.body) for found in await stores.documents.list_documents("user")]
    delegations = [_delegation(found.body) for found in await stores.documents.list_documents("delegation")]
    return People(directory_of(users), tuple(delegations))
