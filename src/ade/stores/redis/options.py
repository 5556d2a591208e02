"""How the store uses its servers, apart from where they are."""

from dataclasses import dataclass
from typing import Literal

from ade.stores.redis.keys import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Checked as a whole; the defaults are right for most."""

    prefix: str = "ade:"  # what every key begins with
    partitions: int = 16  # of a cluster; one server has one. Cannot be changed once there is work
    tasks: str | None = None  # names that other programs expect; None: made from the prefix
    group: str | None = None
    results: str | None = None
    dlq: str | None = None
    patience_s: float = 10.0  # how long a call goes on trying while servers are away
    command_timeout_s: float = 5.0  # of one try
    connect_timeout_s: float = 2.0
    connections: int = 32  # to each server, for each event loop and for all threads without one
    durability: Literal["normal", "strong"] = "normal"
    replicas: int = 1  # how many must have a write before it counts as confirmed, when durability is strong
    confirm_timeout_ms: int = 1000
    allow_volatile: bool = False  # accept a server that forgets everything when it restarts

    def __post_init__(self) -> None:
        self._check_names()
        if not 1 <= self.partitions <= 4096:
            raise ValueError(f"partitions ({self.partitions}) must be from 1 to 4096")
        if min(self.patience_s, self.command_timeout_s, self.connect_timeout_s) <= 0:
            raise ValueError("patience_s, command_timeout_s and connect_timeout_s must be more than 0")
        if self.connections < 1 or self.replicas < 1:
            raise ValueError("connections and replicas must be at least 1")
        if self.durability not in ("normal", "strong"):
            raise ValueError(f"durability ({self.durability}) must be normal or strong")
        if not 0 < self.confirm_timeout_ms < self.command_timeout_s * 1000:
            raise ValueError(
                f"confirm_timeout_ms ({self.confirm_timeout_ms}) must be more than 0 and less than command_timeout_s"
                f" ({self.command_timeout_s:g} s)"
            )

    def _check_names(self) -> None:
        for name in (self.prefix, self.tasks, self.group, self.results, self.dlq):
            if name is not None and (not name or not name.isprintable() or set(name) & set("{} ")):
                raise ValueError(
                    f"the name {name!r} must not be empty, nor have braces, spaces or control characters in it"
                )

        given = [name for name in (self.tasks, self.results, self.dlq) if name is not None]
        if len(set(given)) < len(given):
            raise ValueError("the streams of tasks, of results and of dead letters must have different names")

    @property
    def channel(self) -> str:
        """Where wake-ups are published."""
        return f"{self.prefix}hints"

    @property
    def rare_channel(self) -> str:
        """Where those are published that everybody listens to: changed rules."""
        return f"{self.prefix}hints:rules"

    def names(self, partition: int | None) -> Names:
        """The names of one partition of a cluster, or of a single server (None).

        A cluster keeps keys with the same word in braces on one node.
        """
        tag = "" if partition is None else f"{{p{partition}}}:"
        prefix = self.prefix + tag

        def named(given: str | None, usual: str) -> str:
            return prefix + usual if given is None else tag + given

        return Names(
            prefix=prefix,
            tasks=named(self.tasks, "queue:tasks"),
            group=self.group or "ade-workers",
            results=named(self.results, "queue:results"),
            dlq=named(self.dlq, "queue:dlq"),
        )
