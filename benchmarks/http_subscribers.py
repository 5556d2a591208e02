"""Many subscribers in a process of their own: `python -m benchmarks.http_subscribers <site> <json>`.

Tells when all of them are listening. A line `until <seq>` lets them listen until all have come there, or for some
seconds more; then it tells what each was given, and for some of them how late every event was.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Iterator

from benchmarks.contract import Options, Site
from benchmarks.cores import other_cores, stay_on
from benchmarks.http_processes import answer
from benchmarks.http_requests import BadAnswer, status_of, subscribe
from benchmarks.http_streams import BLOCK_ENDS, Received, moments, part_of

SAMPLE = 10  # of the subscribers look at the moment of every event
PATIENCE_SECONDS = 20.0
BUFFER_BYTES = 1 << 20
STDIN = 0


class Subscriber:
    """One open stream. The buffer is for all of them; one that looks notes how late each event is."""

    def __init__(self, connected: socket.socket, buffer: bytearray, *, looks: bool) -> None:
        self.socket = connected
        self.received = Received()
        self.delays: list[tuple[float, float]] = []  # (when it happened, seconds until it was here)
        self.is_listening = False
        self._buffer, self._view = buffer, memoryview(buffer)
        self._looks = looks
        self._rest = b""

    def receive(self) -> None:
        """Take what has come: whole blocks are counted, the beginning of another one is kept."""
        kept = len(self._rest)
        self._buffer[:kept] = self._rest
        got = self.socket.recv_into(self._view[kept:])
        if not got:
            raise BadAnswer("the server ended a stream")
        end = self._buffer.rfind(BLOCK_ENDS, 0, kept + got) + 1  # the second one may begin the next block
        if not self.is_listening:
            self._check()
        if end:
            self._note(end)
        self._rest = bytes(self._view[end : kept + got])

    def _check(self) -> None:
        if status_of(self._buffer) != 200:
            raise BadAnswer(f"answered {bytes(self._buffer[:400])!r}")
        self.is_listening = True

    def _note(self, end: int) -> None:
        part = part_of(self._buffer, end)
        if part is None:
            return
        self.received.add(part)
        if self._looks:
            now = time.time()
            self.delays += [(moment, now - moment) for moment in moments(self._buffer, end)]


class Crowd:
    """All subscribers of a measurement."""

    def __init__(self, site: Site, options: Options) -> None:
        buffer, each = bytearray(BUFFER_BYTES), max(1, options.subscribers // SAMPLE)
        self.members = [
            Subscriber(_opened(site), buffer, looks=number % each == 0) for number in range(options.subscribers)
        ]
        self._by_file = {member.socket.fileno(): member for member in self.members}
        self._poll = select.epoll()
        for file in self._by_file:
            self._poll.register(file, select.EPOLLIN)

    def listen(self) -> Iterator[None]:
        """Take what comes; yields after each look."""
        while True:
            for file, _ in self._poll.poll(0.05):
                member = self._by_file.get(file)
                if member is not None:
                    member.receive()
            yield

    def hears_orders(self) -> bool:
        return bool(select.select([STDIN], [], [], 0)[0])


def _opened(site: Site) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS)
    made.sendall(subscribe(site, after=0))
    return made


def main(site: Site, options: Options) -> None:
    stay_on(other_cores())
    try:
        crowd = Crowd(site, options)
        looks = crowd.listen()
        while not all(member.is_listening for member in crowd.members):
            next(looks)
        answer({"listening": len(crowd.members)})
        while not crowd.hears_orders():
            next(looks)
        until, deadline = int(os.read(STDIN, 100).split()[1]), time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not all(each.received.reached >= until for each in crowd.members):
            next(looks)
        behind = sum(each.received.reached < until for each in crowd.members)
        if behind:
            raise BadAnswer(f"{behind} subscribers had not all events after {PATIENCE_SECONDS:.0f} s")
    except (BadAnswer, OSError) as error:
        answer({"failure": f"{type(error).__name__}: {error}"})
        return
    parts = [member.received.numbers.tolist() for member in crowd.members]
    answer({"parts": parts, "delays": [each for member in crowd.members for each in member.delays]})


if __name__ == "__main__":
    main(Site.from_json(sys.argv[1]), Options.from_json(sys.argv[2]))
