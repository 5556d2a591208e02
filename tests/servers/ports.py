"""Ports that stay ours, also while the server on them is dead."""

import random
import socket

HOST = "127.0.0.1"
# Below the range from which outgoing connections take theirs: a dead server's port is not taken by a client, and a
# client that tries to reconnect cannot end up connected to itself. A cluster node's second port is BUS_OFFSET higher.
_FIRST, _LAST = 10_000, 19_999
BUS_OFFSET = 10_000


class ReservedPort:
    """A TCP port that no other harness will pick, in this process or another, until it is released."""

    def __init__(self) -> None:
        self._mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for number in random.sample(range(_FIRST, _LAST + 1), 200):
            if self._reserve(number):
                self.number = number
                return
        self._mark.close()
        raise OSError(f"no free port found between {_FIRST} and {_LAST}")

    def _reserve(self, number: int) -> bool:
        """The mark is the UDP port of the same number: it is in nobody's way, and it goes when its process goes."""
        if not (_nobody_listens(number) and _nobody_listens(number + BUS_OFFSET)):
            return False
        try:
            self._mark.bind((HOST, number))
        except OSError:
            return False
        return True

    def release(self) -> None:
        self._mark.close()


def _nobody_listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
