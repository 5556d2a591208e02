"""What is whose. A task is one's own if one is its author, or answers for the program that is: nothing else counts.

So neither the parent of a task, nor another account of the same human, nor having edited it makes it one's own; whoever
is to do more with the tasks of others gets the role for it.

`check_access` answers OWN; then the operation loads the object and calls `check_own` of `ade.operations.owning`, which
asks here, with the very error that it raises where the object does not exist.
"""

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import InvalidAccount
from ade.core.accounts.users import normal_id
from ade.core.approvals.people import Directory


def is_own(caller: Caller, author: str | None, directory: Directory) -> bool:
    """Whether what this author has made is the caller's. What has no author is nobody's."""
    if not author:
        return False
    try:
        account = normal_id(author)  # however it was spelled when the task was made
    except InvalidAccount:
        return False
    if account == caller.user.id:
        return True
    known = directory.get(account)
    return known is not None and not known.is_human and known.owner == caller.user.id
