"""The end of access: what is written and told when sessions end and tokens are revoked. Links end with sessions."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from ade.core.accounts.sessions import SESSION_ENDED, LoginSession
from ade.core.accounts.tokens import TOKEN_REVOKED, Token
from ade.core.documents import DocumentWrite
from ade.core.events import Event
from ade.governance.directory.shelves import LINKS, SESSIONS, TOKENS
from ade.governance.kept import Kept
from ade.ports import Stores


class Ending(NamedTuple):
    """To be written together with the change it follows from."""

    writes: Sequence[DocumentWrite] = ()
    events: Sequence[Event] = ()
    sessions: int = 0  # how many of them end


async def of_account(
    stores: Stores, account: str, reason: str, *, actor: str | None = None, tokens: bool = False
) -> Ending:
    """All sessions and login links of an account, and all its tokens if asked."""
    now = stores.clock.now()
    sessions = [kept.record for kept in (await SESSIONS.all(stores)).values() if kept.record.account == account]
    links = [LINKS.remove(each) for each, kept in (await LINKS.all(stores)).items() if kept.record.account == account]
    ended = of_sessions(sessions, account, reason, now=now, actor=actor)
    ending = ended._replace(writes=[*ended.writes, *links])
    if not tokens:
        return ending
    good = [
        of_token(found, kept, reason, now=now, actor=actor)
        for found, kept in (await TOKENS.all(stores)).items()
        if kept.record.account == account and kept.record.is_good(now)
    ]
    return Ending(
        [*ending.writes, *(write for each in good for write in each.writes)],
        [*ending.events, *(event for each in good for event in each.events)],
        ending.sessions,
    )


def of_sessions(sessions: Sequence[LoginSession], account: str, reason: str, *, now: int, actor: str | None) -> Ending:
    if not sessions:
        return Ending()
    payload: dict[str, object] = {
        "account": account,
        "sessions": [session.short_id for session in sessions],
        "reason": reason,
    }
    event = Event(type=SESSION_ENDED, at=now, actor=actor, payload=payload)
    return Ending([SESSIONS.remove(session.id) for session in sessions], [event], len(sessions))


def of_token(found: str, kept: Kept[Token], reason: str, *, now: int, actor: str | None) -> Ending:
    token = structs.replace(kept.record, revoked_at=now)
    payload: dict[str, object] = {"account": token.account, "token": token.id, "reason": reason}
    event = Event(type=TOKEN_REVOKED, at=now, actor=actor, payload=payload)
    return Ending([TOKENS.put(found, token, seen=kept.version)], [event])
