"""How pumps work."""

from dataclasses import dataclass, field

from ade.core.inbox.restarts import RestartLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpOptions:
    """Times are seconds."""

    # of each pump
    lease_s: float = 30.0  # of a batch, and of the conversation; renewed three times in its length
    idle_s: float = 30.0  # without items, before a pump ends
    grace_s: float = 10.0  # for a batch that is being consumed when the pump is to end
    batches_in_a_row: int = 20  # before a pump makes room, if other conversations wait for one
    restarts: RestartLimits = field(default_factory=RestartLimits)
    # of all pumps of a process
    most_pumps: int = 200  # those that rest do not count, nor those whose turn only waits
    most_waiting: int = 1_000  # beyond so many, those whose turn only waits do count
    starts_per_s: float = 20.0  # at first, until nothing is left over from before
    poll_s: float = 5.0  # between looks when nobody rings
    refused_s: float = 1.0  # before a conversation that another process has is asked for again
    blocked_s: float = 5.0  # before one is looked at again whose next item is for somebody else

    def __post_init__(self) -> None:
        if self.lease_s < 1:
            raise ValueError(f"lease_s ({self.lease_s:g}) must be at least 1 second")
        if self.most_pumps < 1 or self.starts_per_s <= 0 or self.poll_s <= 0:
            raise ValueError("most_pumps, starts_per_s and poll_s must be more than 0")

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)
