"""How much the feed keeps in memory and how often it looks."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The bounds of a feed. What is not in memory is read from the log, so they cost time and never events."""

    ring: int = 10_000  # newest events that are kept for all; up to twice as many for a while
    pending: int = 1_000  # events that wait for one subscriber before it falls behind
    page: int = 500  # events read from the log at once
    readers: int = 4  # pages that are read at once for those who are behind what is in memory
    heartbeat_s: float = 15.0
    poll_s: float = 0.3  # how often to look without a hint: not every event rings
    pace_s: float = 0.02  # the shortest time from look to look, so that hints by the thousand make few reads

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be above 0, not {getattr(self, field.name)}")
        if self.pace_s > self.poll_s:
            raise ValueError(f"pace_s ({self.pace_s}) must not be above poll_s ({self.poll_s})")
