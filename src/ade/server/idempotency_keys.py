"""Requests with an Idempotency-Key, kept for a day as documents that nobody follows.

How it is used, around a route that changes something:

    begun = await begin(stores, account, key, fingerprint(method, target, body))
    if isinstance(begun, Answer):
        return begun                                   # a repeated request, answered as the first time
    answer = ...                                       # carry it out; tasks get `task_key(account, key)` as their key
    await finish(stores, begun, answer)

`finish` is called for refusals too (they free the key), and `forget` when the route raised; if the store fails in one
of these, that is logged and the answer goes out all the same. A server that is killed in between leaves the key as
running; after `runs_ms` the next request with it carries out the same once more. So the route itself must be safe
to repeat: tasks by their own key, everything else by its version, status or digest. Who takes longer than that calls
`renew` meanwhile, and ends with that before `finish`, so that neither gets in the way of the other.
"""

import os
from contextlib import suppress

from msgspec import Struct, structs

from ade.errors import StaleWrite
from ade.server.idempotency import (
    RETENTION_MS,
    RUNS_MS,
    KeyStanding,
    StoredRequest,
    StoredResponse,
    again,
    is_storable,
    place_of,
    refusal,
    standing,
    stored_response,
)
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord, decided

KIND = "web_key"
_SHELF = Repository(KIND, StoredRequest, lambda kept: kept.kept_until)


class BegunRequest(Struct, frozen=True, kw_only=True):
    """A request that is now the caller's to carry out."""

    place: str
    request: StoredRequest
    is_second_try: bool = False  # somebody has begun it before and did not come back


async def begin(
    stores: Stores, account: str, key: str, fingerprint: str, *, kept_ms: int = RETENTION_MS, runs_ms: int = RUNS_MS
) -> BegunRequest | StoredResponse:
    """Take the request on, or learn how it was answered. No two callers have the same request at once.

    Raises RequestRefused: 409 while another caller has it (or its answer was too large to be kept), 422 when the key
    belongs to another request.
    """
    place, holder = place_of(account, key), os.urandom(12).hex()

    async def step() -> BegunRequest | StoredResponse:
        kept = await _SHELF.get(stores, place)
        steady = stores.clock.steady()
        state = standing(None if kept is None else kept.record, fingerprint, steady=steady)
        if state is KeyStanding.REPEAT and kept is not None and kept.record.answer is not None:
            return again(kept.record.answer)
        if state not in (KeyStanding.FIRST, KeyStanding.ABANDONED):
            raise refusal(state)
        request = StoredRequest(
            fingerprint=fingerprint,
            holder=holder,
            begun_at=stores.clock.now(),
            runs_until=steady + runs_ms,
            kept_ms=kept_ms,
        )
        await _write(stores, place, request, seen=0 if kept is None else kept.version)
        return BegunRequest(place=place, request=request, is_second_try=state is KeyStanding.ABANDONED)

    return await decided(step)


async def renew(stores: Stores, begun: BegunRequest, runs_ms: int) -> None:
    """It is still being carried out. Who was taken for dead changes nothing any more."""
    kept = await _mine(stores, begun)
    if kept is not None and kept.record.answer is None:
        with suppress(StaleWrite):
            longer = structs.replace(kept.record, runs_until=stores.clock.steady() + min(runs_ms, RUNS_MS))
            await _write(stores, begun.place, longer, seen=kept.version)


async def finish(stores: Stores, begun: BegunRequest, answer: StoredResponse) -> None:
    """Keep the answer, or free the key if nothing was done. Who was taken for dead changes nothing any more."""
    if not is_storable(answer.status):
        await forget(stores, begun)
        return
    kept = await _mine(stores, begun)
    if kept is not None:
        with suppress(StaleWrite):
            answered = structs.replace(begun.request, answer=stored_response(answer))
            await _write(stores, begun.place, answered, seen=kept.version)


async def forget(stores: Stores, begun: BegunRequest) -> None:
    """The request was not carried out: the next one with this key is the first again."""
    kept = await _mine(stores, begun)
    if kept is not None:
        with suppress(StaleWrite):
            removal = structs.replace(_SHELF.remove(begun.place), seen=kept.version, is_quiet=True)
            await stores.documents.write([removal])


async def _mine(stores: Stores, begun: BegunRequest) -> StoredRecord[StoredRequest] | None:
    kept = await _SHELF.get(stores, begun.place)
    return kept if kept is not None and kept.record.holder == begun.request.holder else None


async def _write(stores: Stores, place: str, request: StoredRequest, *, seen: int) -> None:
    put = _SHELF.put(place, request, seen=seen)
    await stores.documents.write([structs.replace(put, is_quiet=True)])
