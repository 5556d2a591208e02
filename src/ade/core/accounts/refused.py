"""What is told when somebody was not let in, or asked for what is not his."""

from ade.core.events import Event

ACCESS_REFUSED, FOREIGN_ASKED = "access.refused", "access.foreign"


def access_refused(address: str, given: str, *, now: int) -> Event:
    """A token or a session that is none. Of the secret nothing is told: it may be a good one with a slip in it."""
    payload: dict[str, object] = {"ip": address, "given": given}
    return Event(type=ACCESS_REFUSED, at=now, payload=payload)


def foreign_asked(account: str, operation: str, about: str, *, now: int) -> Event:
    """Somebody known asked for an object of somebody else, and was told that there is none."""
    payload: dict[str, object] = {"account": account, "operation": operation, "about": about[:200]}
    return Event(type=FOREIGN_ASKED, at=now, actor=account, payload=payload)
