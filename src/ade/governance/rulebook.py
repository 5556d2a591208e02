"""The rulebook in the store: applied as a whole, in versions that are all kept, and told of in the log."""

from typing import Any

from msgspec import Struct, structs

from ade.core.approvals.refusals import UnknownRulebook
from ade.core.approvals.rulebook import Rulebook
from ade.core.errors import StaleWrite
from ade.core.events import Event
from ade.governance.following import Followed
from ade.governance.kept import Kept, Shelf
from ade.ports import Stores

RULEBOOK_CHANGED, SELF_REVIEW_ALLOWED = "rulebook.changed", "policy.self_review_allowed"
CURRENT = "current"


class Edition(Struct, frozen=True, kw_only=True):
    """One version, as it was applied."""

    version: int = 0  # 0: nobody has applied one yet
    rules: dict[str, Any] = {}
    digest: str = ""
    at: int = 0
    by: str | None = None


NEWEST = Shelf("rulebook", Edition)
EDITIONS = Shelf("rulebook_version", Edition)


async def apply(stores: Stores, rulebook: Rulebook, *, actor: str | None, seen: int | None = None) -> Rulebook:
    """Put this rulebook in force. `seen` is the version it was made from; None: whichever there is.

    One that says the same as the newest makes no new version. Raises StaleWrite when another one was applied since.
    """
    from ade.core.approvals.canonical import digest_of  # whoever only reads does without these
    from ade.core.approvals.rulebook_writing import as_document

    kept = await NEWEST.get(stores, CURRENT)
    newest = 0 if kept is None else kept.record.version
    if seen is not None and seen != newest:
        raise StaleWrite(f"the rulebook is at version {newest} by now, not {seen}; look at it and apply yours again")
    rules = as_document(rulebook)
    digest = digest_of(rules)
    if kept is not None and kept.record.digest == digest:
        return structs.replace(rulebook, version=newest)
    edition = Edition(version=newest + 1, rules=rules, digest=digest, at=stores.clock.now(), by=actor)
    await stores.documents.write(
        [
            NEWEST.put(CURRENT, edition, seen=0 if kept is None else kept.version),
            EDITIONS.put(str(edition.version), edition, seen=0),
        ],
        _events(edition, rulebook),
    )
    return structs.replace(rulebook, version=edition.version)


def _events(edition: Edition, rulebook: Rulebook) -> list[Event]:
    told: dict[str, object] = {"version": edition.version, "digest": edition.digest}
    events = [Event(type=RULEBOOK_CHANGED, at=edition.at, actor=edition.by, payload=told)]
    unseparated = [entry.policy.id for entry in rulebook.policies if entry.policy.authors_may_vote]
    if unseparated:
        payload: dict[str, object] = {"version": edition.version, "policies": unseparated}
        events.append(Event(type=SELF_REVIEW_ALLOWED, at=edition.at, actor=edition.by, payload=payload))
    return events


async def load(stores: Stores) -> Rulebook:
    """The rulebook in force; an empty one of version 0 where none was ever applied."""
    return await _newer(stores, None)


async def newest(stores: Stores) -> Edition:
    """The version in force, as it was applied."""
    kept = await NEWEST.get(stores, CURRENT)
    return Edition() if kept is None else kept.record


async def edition(stores: Stores, version: int) -> Edition:
    """Raises UnknownRulebook."""
    kept = await EDITIONS.get(stores, str(version))
    if kept is None:
        raise UnknownRulebook(f"the rulebook never had a version {version}", advice=UnknownRulebook.usual_advice)
    return kept.record


async def history(stores: Stores) -> list[Edition]:
    """Every version there was, the newest first."""
    editions = [kept.record for kept in (await EDITIONS.all(stores)).values()]
    return sorted(editions, key=lambda edition: edition.version, reverse=True)


async def _newer(stores: Stores, known: Rulebook | None) -> Rulebook:
    kept: Kept[Edition] | None = await NEWEST.get(stores, CURRENT)
    if kept is None:
        return Rulebook()
    if known is not None and known.version == kept.record.version:
        return known
    from ade.core.approvals.rulebook_reading import read_rulebook  # most stores have no rulebook

    return read_rulebook(kept.record.rules, version=kept.record.version)


class RulebookCache(Followed[Rulebook]):
    """The rulebook in force, for one event loop."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores, _newer)
