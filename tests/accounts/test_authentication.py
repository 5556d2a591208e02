"""Who asks: known by token or session, refused in one way, and never for longer than the account may do it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ade.accounts.authentication import REFUSALS, WRONG, CallerCache, authenticate, require_own
from ade.accounts.sessions import end, end_all, sign_in
from ade.errors import NotPermitted, StoreUnavailable, UnknownTask
from ade.server.credentials import Credentials
from ade.server.operation import check_access
from ade.stores.wakeups import LocalWakeups
from ade.testing import TestClock
from tests.accounts.conftest import CHEAP, PASSWORD
from tests.conformance.backends import BACKENDS
from tests.domain import (
    ROUTE_OF,
    RULES,
    Caller,
    Document,
    NotAuthenticated,
    Permission,
    RedisSettings,
    Stores,
    TooManyRequests,
    User,
    UserChanges,
    add_user,
    change_user,
    create_token,
    fingerprint,
    open_redis,
    revoke_token,
)
from tests.servers.pool import POOL
from tests.servers.server import PLAIN

Open = Callable[[], Awaitable[Stores]]
SHARED = pytest.mark.parametrize("kind", [each for each in BACKENDS if each != "memory"], indirect=True)


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def open_store(kind: str, tmp_path: Path, clock: TestClock) -> AsyncIterator[Open]:
    """Opened again it is the same store, as in another process; but of what is in memory each has its own."""
    opened: list[Stores] = []

    async def open_one() -> Stores:
        is_file = kind in ("memory", "sqlite")
        opened.append(
            await (_once_more(kind, clock) if opened and not is_file else BACKENDS[kind].open(tmp_path, clock))
        )
        return opened[-1]

    yield open_one
    for each in opened:
        await each.close()


async def _once_more(kind: str, clock: TestClock) -> Stores:
    """Without the pool, which would empty the server."""
    if kind == "cluster":
        url = POOL._clusters["valkey", PLAIN, 0].url
        return await open_redis(url, RedisSettings(allow_volatile=True, partitions=6), clock)
    return await open_redis(POOL._servers[kind, PLAIN].url, RedisSettings(allow_volatile=True), clock)


@pytest.fixture
async def stores(open_store: Open) -> Stores:
    made = await open_store()
    await add_user(made, User(id="ada", roles=frozenset({"admin"})), password=PASSWORD, cost=CHEAP)
    await add_user(made, User(id="bob", roles=frozenset({"viewer", "reviewer"})), password=PASSWORD, cost=CHEAP)
    await add_user(made, User(id="bot", roles=frozenset({"agent"}), is_human=False, owner="bob"))
    return made


@pytest.fixture
def cache(stores: Stores) -> CallerCache:
    return CallerCache(stores)


async def signed_in(stores: Stores, name: str = "bob") -> Credentials:
    secret, _ = await sign_in(stores, name, PASSWORD)
    return Credentials(session=secret, address="10.0.0.7")


async def with_token(stores: Stores, name: str = "bot") -> tuple[Credentials, str]:
    secret, token = await create_token(stores, name)
    return Credentials(token=secret, address="10.0.0.7"), token.id


async def known(stores: Stores, credentials: Credentials, cache: CallerCache | None) -> Caller:
    caller = await authenticate(stores, credentials, cache)
    assert caller is not None
    return caller


async def complaint(stores: Stores, credentials: Credentials, cache: CallerCache | None = None) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        await authenticate(stores, credentials, cache)
    return str(caught.value)


async def test_somebody_is_known_by_a_session_or_a_token(stores: Stores, cache: CallerCache) -> None:
    session, (token, _) = await signed_in(stores), await with_token(stores)

    assert (await known(stores, session, cache)).user.id == "bob"
    assert (await known(stores, token, cache)).user.id == "bot"
    assert await authenticate(stores, Credentials(address="10.0.0.7"), cache) is None
    both = Credentials(token=token.token, session=session.session)
    assert "not both" in await complaint(stores, both, cache)


async def test_whatever_is_wrong_the_words_are_the_same(stores: Stores, cache: CallerCache) -> None:
    session, (token, token_id), (other, _) = await signed_in(stores), await with_token(stores), await with_token(stores)
    wrong = [Credentials(token=""), Credentials(token="ade_made-up"), Credentials(session="x" * 43)]
    swapped = [Credentials(token=session.session), Credentials(session=token.token)]
    await revoke_token(stores, token_id)
    await change_user(stores, "bob", UserChanges(is_active=False))  # and with the owner his programs

    assert {await complaint(stores, each, cache) for each in (*wrong, *swapped, session, token, other)} == {WRONG}


@pytest.mark.parametrize("way", ["role", "token", "account", "owner", "session", "all sessions"])
async def test_what_is_taken_away_counts_with_the_next_request(stores: Stores, cache: CallerCache, way: str) -> None:
    session, (token, token_id) = await signed_in(stores), await with_token(stores)
    assert Permission.VOTE in (await known(stores, session, cache)).permissions
    await known(stores, token, cache)

    match way:
        case "role":
            await change_user(stores, "bob", UserChanges(fewer_roles=frozenset({"reviewer"})))
            caller = await known(stores, session, cache)
            with pytest.raises(NotPermitted):
                check_access(ROUTE_OF["respond_to_approval"], caller)
        case "token":
            await revoke_token(stores, token_id)
            await complaint(stores, token, cache)
        case "account":
            await change_user(stores, "bot", UserChanges(is_active=False))
            await complaint(stores, token, cache)
        case "owner":
            await change_user(stores, "bob", UserChanges(is_active=False))
            await complaint(stores, token, cache)
            await complaint(stores, session, cache)
        case "session":
            await end(stores, fingerprint(session.session or ""))
            await complaint(stores, session, cache)
        case _:
            await end_all(stores, "bob")
            await complaint(stores, session, cache)


@SHARED
async def test_a_role_that_another_process_takes_away_is_gone_when_its_hint_is_heard(
    stores: Stores, open_store: Open
) -> None:
    elsewhere = await open_store()
    there = CallerCache(elsewhere)
    session = await signed_in(stores)
    assert Permission.VOTE in (await known(elsewhere, session, there)).permissions

    heard = elsewhere.wakeups.generation(RULES)
    await change_user(stores, "bob", UserChanges(fewer_roles=frozenset({"reviewer"})))
    await elsewhere.wakeups.wait(RULES, heard, 10)

    assert Permission.VOTE not in (await known(elsewhere, session, there)).permissions


@SHARED
async def test_without_any_hint_it_is_gone_after_a_second(
    stores: Stores, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, moments = replace(await open_store(), wakeups=LocalWakeups()), [100.0]  # deaf to others
    monkeypatch.setattr("ade.accounts.authentication.time.monotonic", lambda: moments[0])
    there = CallerCache(elsewhere)
    session = await signed_in(stores)
    await known(elsewhere, session, there)
    await change_user(stores, "bob", UserChanges(fewer_roles=frozenset({"reviewer"})))

    moments[0] += 1.0

    assert Permission.VOTE not in (await known(elsewhere, session, there)).permissions


async def test_sessions_and_tokens_end_in_time_also_from_memory(
    stores: Stores, cache: CallerCache, clock: TestClock
) -> None:
    secret, _ = await create_token(stores, "bot", lasts_ms=60_000)
    token, session = Credentials(token=secret), await signed_in(stores)
    await known(stores, token, cache)
    clock.advance(59)
    await known(stores, token, cache)
    clock.advance(1)
    assert await complaint(stores, token, cache)
    await known(stores, session, cache)
    clock.advance(3_600)
    assert await complaint(stores, session, cache)


class Counted:
    """The real documents, and how often they were looked at."""

    def __init__(self, stores: Stores) -> None:
        self._real = stores.documents
        self.reads = self.rates = 0
        self.is_away = False

    async def fetch(self, kind: str, ids: list[str]) -> list[Document | None]:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable
        return await self._real.fetch(kind, ids)

    async def take_rate(self, key: str, count: int, period_ms: int) -> int:
        self.rates += 1
        return await self._real.take_rate(key, count, period_ms)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def counted(stores: Stores) -> tuple[Stores, Counted]:
    documents = Counted(stores)
    return replace(stores, documents=documents), documents  # it stands in for the whole


async def test_many_requests_cost_one_look(stores: Stores) -> None:
    """Three reads: the token, its account, its owner. The hint of one's own write may be heard once more later."""
    watched, documents = counted(stores)
    cache = CallerCache(watched)
    token, _ = await with_token(stores)
    await authenticate(watched, token, cache)
    documents.reads = 0

    await asyncio.gather(*(authenticate(watched, token, cache) for _ in range(100)))
    assert documents.reads in (0, 3)
    documents.reads = 0
    await add_user(stores, User(id="cyd"))  # something changes, so it is looked at again
    await asyncio.gather(*(authenticate(watched, token, cache) for _ in range(100)))
    assert documents.reads in (3, 6)


async def test_whoever_cannot_be_looked_up_is_not_let_in(stores: Stores) -> None:
    watched, documents = counted(stores)
    cache = CallerCache(watched)
    token, _ = await with_token(stores)
    await authenticate(watched, token, cache)
    documents.is_away = True
    await add_user(stores, User(id="cyd"))

    with pytest.raises(StoreUnavailable):
        await authenticate(watched, token, cache)


async def test_wrong_ones_are_limited_for_their_address_and_good_ones_still_pass(
    stores: Stores, cache: CallerCache, clock: TestClock
) -> None:
    token, _ = await with_token(stores)
    for number in range(REFUSALS[0]):
        await complaint(stores, Credentials(token=f"ade_{number}", address="10.0.0.7"), cache)

    with pytest.raises(TooManyRequests) as refused:
        await authenticate(stores, Credentials(session="x" * 43, address="10.0.0.7"), cache)

    assert 0 < refused.value.retry_after <= 2
    assert (await known(stores, token, cache)).user.id == "bot"  # from the same address
    await complaint(stores, Credentials(token="ade_x", address="10.0.0.8"), cache)
    clock.advance(refused.value.retry_after)
    await complaint(stores, Credentials(token="ade_x", address="10.0.0.7"), cache)


async def test_a_flood_of_wrong_ones_is_not_written_down_each(stores: Stores, clock: TestClock) -> None:
    """What the store has to count, all others must wait for."""
    watched, documents = counted(stores)
    cache, wrong = CallerCache(watched), Credentials(token="ade_x", address="10.0.0.7")
    for _ in range(REFUSALS[0]):
        await complaint(watched, wrong, cache)
    asked = documents.rates
    for _ in range(100):
        with pytest.raises(TooManyRequests) as refused:
            await authenticate(watched, wrong, cache)
    assert documents.rates - asked == 1
    clock.advance(refused.value.retry_after)
    await complaint(watched, wrong, cache)


async def test_the_log_tells_of_it_sparingly_and_without_secrets(
    stores: Stores, cache: CallerCache, clock: TestClock
) -> None:
    async def refusals() -> list[dict[str, object]]:
        events = await stores.events.read(0, 1_000)
        return [event.payload for event in events if event.type == "access.refused"]

    for _ in range(10):
        await complaint(stores, Credentials(token="ade_a-secret", address="2001:db8::1"), cache)
    await complaint(stores, Credentials(session="s" * 43, address="2001:db8::2"), cache)  # the same customer
    await complaint(stores, Credentials(session="s" * 43, address="10.0.0.8"), cache)
    assert await refusals() == [{"ip": "2001:db8::1", "given": "token"}, {"ip": "10.0.0.8", "given": "session"}]

    clock.advance(60)
    for number in range(100):
        await complaint(stores, Credentials(token="ade_x", address=f"10.0.1.{number}"), cache)
    assert len(await refusals()) <= 2 + 60


async def test_what_is_foreign_does_not_exist_and_is_told_of(stores: Stores, clock: TestClock) -> None:
    ada, bot = (Caller(user=User(id=name)) for name in ("ada", "bot"))
    bob = Caller(user=User(id="bob"))

    async def act(caller: Caller, author: str | None) -> None:
        missing = UnknownTask("no task t1 exists")
        await require_own(stores, caller, author, missing, operation="cancel_task", about="t1")

    await act(bob, "bob")
    await act(bob, "bot")
    await act(bot, "bot")
    for caller, author in ((ada, "bob"), (bot, "bob"), (bob, None)):
        with pytest.raises(UnknownTask, match="no task t1 exists"):
            await act(caller, author)

    events = [event for event in await stores.events.read(0, 1_000) if event.type == "access.foreign"]
    assert [event.actor for event in events] == ["ada", "bot", "bob"]
    assert events[0].payload == {"account": "ada", "operation": "cancel_task", "about": "t1"}
    for _ in range(30):
        with pytest.raises(UnknownTask):
            await act(ada, "bob")
    assert len([event for event in await stores.events.read(0, 1_000) if event.actor == "ada"]) == 10
