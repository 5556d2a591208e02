"""Wake-ups between processes by PUBLISH and SUBSCRIBE. They can be lost: they only shorten waits for a poll."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from ade.errors import StoreError, StoreUnavailable
from ade.logs import Log
from ade.stores.ports import LOCK, LOST, RULES, WORK
from ade.stores.redis.client.client import RedisClient, pauses_between_tries
from ade.stores.redis.client.connections import RedisConnection
from ade.stores.redis.client.errors import FAILURES, ServerError, reason
from ade.stores.redis.client.options import RedisAddress
from ade.stores.redis.client.topology import SHORT_PATIENCE_S
from ade.stores.wakeups import TOPICS, LocalWakeups, running_loop

PING_EVERY_S = 0.5  # changed rules take effect within 1 s, even if the subscription died unnoticed
SILENT_AFTER_S = 6.0  # without a message or a response to PING
_SEND_S = 2.0
_SAME_NEWS_S = 0.05  # a notification this soon after a write that published the same topic is not published again
_PUBLISH_PATIENCE_S = 2.0
_RARE = (RULES, LOST)
_OF_LOCKS = b"lock "  # followed by the changed lock requests (MessagePack)
_PAUSES_S = 0.05, 2.0  # before resubscribing: the first and the longest pause

_log = Log(__name__)


class RedisWakeups(LocalWakeups):
    """One subscription per process, from the first wait until `close`, on the client's own loop or that of `listen`.

    A new subscription wakes all topics, because notifications might have been missed. A process that waits only for
    rare topics (changed rules, lost locks) subscribes to these. The first wait for another topic subscribes to
    everything.
    """

    def __init__(self, link: RedisClient) -> None:
        super().__init__()
        self._link = link
        self.tolerance_s = link.settings.stale_rules_s if link.partitions > 1 else 0.0
        self._channel = f"{link.settings.prefix}hints"
        self._rules_channel = f"{link.settings.prefix}hints:rules"  # rare topics; every process subscribes to it
        self._subscribes_to_all = False
        self._widen: Callable[[], object] | None = None  # set while subscribed only to rare topics
        self._words = {topic.encode(): topic for topic in TOPICS}
        self._unsent: set[str] = set()
        self._publishing = False
        self._published_at: dict[str, float] = {}
        self._readers: tuple[_LockSubscriber, ...] = ()
        self._listening: Future[None] | None = None
        self._attending = 0
        self._received_at = 0.0
        self._current: tuple[RedisAddress | None, float] = (
            None,
            float("-inf"),
        )  # the server, and the time up to which all its messages were received
        self._closed = False

    def added(self) -> None:
        """Wake local waiters for new tasks, which a script has published. A later `notify` is published separately."""
        self._wake(WORK)

    def published(self, *topics: str) -> None:
        """Wake local waiters for topics that a script has published; the `notify` that follows is not published."""
        now = time.monotonic()
        for topic in topics:
            self._published_at[topic] = now
            self._wake(topic)

    def notify(self, topic: str) -> None:
        self._wake(topic)
        if time.monotonic() - self._published_at.pop(topic, 0.0) < _SAME_NEWS_S:
            return
        with self._lock:
            self._unsent.add(topic)
            if self._publishing or self._closed:
                return
            self._publishing = True
        with suppress(StoreError):  # the client is closed
            self._link.aside.submit(self._publish())

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        self._link.check_process()
        self._listen(topic)
        await super().wait(topic, seen, timeout)

    def lag_s(self, topic: str) -> float:
        """Seconds since the last PING with a response was sent: messages published before it have arrived."""
        self._link.check_process()
        with suppress(StoreError):  # the client is closed
            self._listen(topic)
        server, at = self._current
        return time.monotonic() - at if server == self._link.where(0) else float("inf")

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        self._link.check_process()
        self._listen(topic)
        return super().follow(topic, callback)

    def follow_locks(self, callback: Callable[[bytes | None], None]) -> Callable[[], None]:
        """Call back on the running loop with lock notifications; with None when some might have been missed."""
        self._link.check_process()
        reader = _LockSubscriber(callback)
        with self._lock:
            self._readers += (reader,)
            hosts = not self._attending
        hosting = asyncio.get_running_loop().create_task(self.listen(), name="ade-lock-news") if hosts else None

        def unfollow() -> None:
            with self._lock:
                self._readers = tuple(each for each in self._readers if each is not reader)
            if hosting is not None:
                hosting.cancel()

        return unfollow

    def publish_locally(self, message: bytes | None) -> None:
        """Notify the lock subscribers of this process; the server notifies other processes."""
        here = running_loop() if self._readers else None
        for reader in self._readers:
            reader.call(message, here)

    async def listen(self) -> None:
        """Run the subscription on the running loop until cancelled."""
        with self._lock:
            self._attending += 1
            self._subscribes_to_all = True
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
        try:
            await self._listen_for_ever()
        finally:
            with self._lock:
                self._attending -= 1
            if self._is_awaited():  # by other loops, which this subscription served
                with suppress(StoreError):  # the client is closed
                    self._listen(WORK)

    def close(self) -> None:
        """End the subscription and wake all waiters."""
        with self._lock:
            self._closed = True
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
        super().close()

    async def _publish(self) -> None:
        """Publish the pending topics, including topics added in the meantime."""
        while True:
            with self._lock:
                topics, self._unsent = self._unsent, set()
                self._publishing = bool(topics)
            if not topics:
                return
            words = [("PUBLISH", self._rules_channel if topic in _RARE else self._channel, topic) for topic in topics]
            try:
                await self._link.ask(self._place(), *words, patience_s=_PUBLISH_PATIENCE_S)
            except StoreError as error:  # other processes find out when they poll
                _log.debug("hints.not_published", reason=error.detail)

    def _listen(self, topic: str) -> None:
        with self._lock:
            widen = None
            if topic not in _RARE and not self._subscribes_to_all:
                self._subscribes_to_all, widen = True, self._widen
            if self._listening is None and not self._attending and not self._closed:
                self._listening = self._link.aside.submit(self._listen_for_ever())
        if widen is not None:
            with suppress(RuntimeError):  # the loop is closed
                widen()

    async def _listen_for_ever(self) -> None:
        pauses = pauses_between_tries(*_PAUSES_S)
        while True:
            try:
                place = self._place()
                line = await self._subscribed(place)
                pauses = pauses_between_tries(*_PAUSES_S)
                try:
                    await self._hear(line, place)
                finally:
                    self._current = None, float("-inf")
                    line.abort()
            except (*FAILURES, StoreError) as error:
                _log.debug("hints.interrupted", reason=reason(error))
            await asyncio.sleep(next(pauses))

    def _place(self) -> int:
        """The partition whose server passes messages on: the first one, or another while that one does not respond.

        Every server of a cluster passes on the messages of all. But only on the server of the first partition, where
        rules are changed, is it certain that no message about them was missed.
        """
        return next(iter(self._link.reach.near(range(self._link.partitions))), 0)

    async def _subscribed(self, place: int) -> RedisConnection:
        patience_s = SHORT_PATIENCE_S if self._link.partitions > 1 else None
        try:
            line = await self._link.connect(place, patience_s=patience_s)
        except StoreUnavailable as error:
            if self._link.partitions > 1:
                self._link.reach.note(place, error)
            raise
        try:
            with self._lock:
                hears_all = self._subscribes_to_all
                loop = asyncio.get_running_loop()
                self._widen = None if hears_all else partial(loop.call_soon_threadsafe, self._subscribe_to_all, line)
            channels = (self._rules_channel, self._channel) if hears_all else (self._rules_channel,)
            async with asyncio.timeout(_SEND_S):
                answers = await line.exchange([("SUBSCRIBE", channel) for channel in channels])
            for answer in answers:
                if isinstance(answer, ServerError):
                    raise answer
        except BaseException:
            line.abort()
            raise
        self._wake_all()
        return line

    def _subscribe_to_all(self, line: RedisConnection) -> None:
        with suppress(*FAILURES):  # the connection has ended; the next one subscribes to everything
            line.send([("SUBSCRIBE", self._channel)])

    def _wake_all(self) -> None:
        for topic in TOPICS:
            self._wake(topic, is_announced=False)
        self.publish_locally(None)

    async def _hear(self, line: RedisConnection, place: int) -> None:
        """Receive messages until PING shows that the connection is dead; an open socket proves nothing."""
        server = self._link.where(place)
        self._received_at = time.monotonic()
        line.push_to(partial(self._take, server))
        while self._link.where(place) == server and self._place() == place:
            line.send([("PING", time.monotonic())])
            await line.listen(PING_EVERY_S)  # returns early only if the connection ends
            if time.monotonic() - self._received_at > SILENT_AFTER_S:
                raise TimeoutError("the server has not answered for too long")

    def _take(self, server: RedisAddress | None, message: object) -> None:
        self._received_at = time.monotonic()
        if not isinstance(message, list):
            return
        if message[0] == b"pong":
            self._current = server, float(message[1])
        elif message[0] == b"subscribe":  # to the second channel
            self._wake_all()
        elif message[0] == b"message":
            topic = self._words.get(message[2])
            if topic is not None:
                self._wake(topic)
            elif message[2].startswith(_OF_LOCKS):
                self.publish_locally(message[2][len(_OF_LOCKS) :])
                self._wake(LOCK)


class _LockSubscriber:
    """A callback for lock notifications, called on its own event loop."""

    __slots__ = ("_callback", "_loop")

    def __init__(self, callback: Callable[[bytes | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback

    def call(self, message: bytes | None, here: asyncio.AbstractEventLoop | None) -> None:
        if self._loop is here:
            self._callback(message)
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._callback, message)
