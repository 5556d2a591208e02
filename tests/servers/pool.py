"""The servers that all tests of one run share: started when first asked for, ended with the run."""

import atexit
from typing import TypeVar

from tests.servers.binaries import Binary, available, missing
from tests.servers.cluster import Cluster
from tests.servers.sentinel import Sentinels
from tests.servers.server import PLAIN, Options, Server

Started = TypeVar("Started", Server, Cluster, Sentinels)


class NoSuchServer(LookupError):
    """The message says what is not installed."""


class Pool:
    """Servers by kind and options. Whoever takes one gets it empty and running, even if another test has killed it."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, Options], Server] = {}
        self._clusters: dict[tuple[str, Options, int], Cluster] = {}
        self._sentinels: dict[tuple[str, Options], Sentinels] = {}

    def standalone(self, kind: str, options: Options = PLAIN) -> Server:
        """One server, without any data."""
        server = self._servers.pop((kind, options), None)
        if server is None or not server.alive or not server.ready:
            _close(server)
            server = _started(Server(_binary(kind), options))
        server.flush()
        self._servers[kind, options] = server
        return server

    def cluster(self, kind: str, options: Options = PLAIN, *, replicas: int = 0) -> Cluster:
        """Three primaries, without any data."""
        cluster = self._clusters.pop((kind, options, replicas), None)
        if cluster is None or not cluster.alive:
            _close(cluster)
            cluster = _started(Cluster(_binary(kind), options, replicas=replicas))
        cluster.flush()
        self._clusters[kind, options, replicas] = cluster
        return cluster

    def sentinels(self, kind: str, options: Options = PLAIN) -> Sentinels:
        """A primary and its replica under three sentinels, without any data."""
        watched = self._sentinels.pop((kind, options), None)
        if watched is None or not watched.alive:
            _close(watched)
            watched = _started(Sentinels(_binary(kind), options))
        watched.flush()
        self._sentinels[kind, options] = watched
        return watched

    def flush(self) -> None:
        """Empty everything that runs."""
        for each in self._all():
            each.flush()

    def close(self) -> None:
        """End everything. The pool can be used again."""
        for each in self._all():
            each.close()
        self._servers, self._clusters, self._sentinels = {}, {}, {}

    def _all(self) -> list[Server | Cluster | Sentinels]:
        return [*self._servers.values(), *self._clusters.values(), *self._sentinels.values()]


# One for all tests, also when several conftest files bring the fixture in.
POOL = Pool()
atexit.register(POOL.close)


def _binary(kind: str) -> Binary:
    try:
        return available()[kind]
    except KeyError:
        raise NoSuchServer(missing(kind)) from None


def _started(made: Started) -> Started:
    try:
        return made.start()
    except BaseException:
        made.close()
        raise


def _close(old: Server | Cluster | Sentinels | None) -> None:
    if old is not None:
        old.close()
