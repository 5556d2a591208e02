"""A campaign in numbers."""

from pathlib import Path

from msgspec import Struct

from ade.settings import Settings
from ade.settings.sections import EventSettings, LogSettings, StoreSettings, SweepSettings, WorkerSettings

SQLITE = "sqlite"
CLUSTER = "cluster"
STORES = (SQLITE, "redis", "valkey", CLUSTER)


class Plan(Struct, frozen=True, kw_only=True):
    """The seed decides who is harmed, how and when; what the machine makes of it is its own affair."""

    folder: str
    seed: int
    store: str = SQLITE
    server_url: str | None = None  # filled in when the server of the campaign is up
    kills: int = 1_000
    in_flight: int = 20_000  # unfinished tasks, at least, from the first kill to the last
    workers: int = 5
    producers: int = 3
    clerks: int = 1
    kills_per_s: float = 5.0
    suspensions: float = 0.1  # for each kill
    lease_s: float = 1.0
    drain_s: float = 180.0  # for what is left when the killing is over

    @property
    def aim(self) -> int:
        """What producers fill up to: they are killed too, and workers go on meanwhile."""
        return self.in_flight + max(self.in_flight // 20, 500)

    @property
    def place(self) -> Path:
        return Path(self.folder)

    @property
    def database(self) -> Path:
        return self.place / "ade.db"

    @property
    def url(self) -> str:
        return self.server_url or f"sqlite:///{self.database}"

    @property
    def audit_url(self) -> str | None:
        """None: the copy lies beside the database."""
        return None if self.server_url is None else f"sqlite:///{self.place / 'audit.db'}"

    def settings(self, *, slot: int = 0, hasty: bool = False) -> Settings:
        """Short leases and quick sweeps. Every other worker has no guardian; hasty ones are there to drain."""
        return Settings(
            store=StoreSettings(url=self.url),
            worker=WorkerSettings(
                concurrency=100 if hasty else 12,
                lease_s=self.lease_s,
                heartbeat_s=self.lease_s * 0.3,
                poll_s=0.2,
                grace_s=5.0,
                lease_guard=slot % 2 == 0,
            ),
            sweep=SweepSettings(interval_s=0.2),
            log=LogSettings(level="warning", format="json"),
            events=EventSettings(audit_url=self.audit_url),
        )
