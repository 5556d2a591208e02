"""The programs that are measured, one module each, behind the protocol of `benchmarks.contract`."""

import importlib
from dataclasses import dataclass

from benchmarks.contract import Contestant


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a contestant lives and which packages its environment needs."""

    module: str
    title: str
    requirements: str | None = None  # a lock file in benchmarks/; None is the project's own environment


ENTRIES = {
    "ade": Entry("benchmarks.contestants.ade", "ADE"),
    "huey": Entry("benchmarks.contestants.huey", "Huey", "peers.txt"),
    "persist_queue": Entry("benchmarks.contestants.persist_queue", "persist-queue", "peers.txt"),
    "litequeue": Entry("benchmarks.contestants.litequeue", "litequeue", "peers.txt"),
}
PEERS = tuple(name for name, entry in ENTRIES.items() if entry.requirements is not None)


def load(name: str) -> Contestant:
    """Import one contestant; only its own environment can."""
    contestant: Contestant = importlib.import_module(ENTRIES[name].module).CONTESTANT
    return contestant
