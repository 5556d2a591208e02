"""How long to wait after a failure. Chance comes in as an argument, so tests are exact."""

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Delays of 1 s, 2 s, 4 s ... up to the cap, spread by the jitter. All times in milliseconds."""

    base_ms: int = 1_000
    multiplier: float = 2.0
    cap_ms: int = 300_000
    jitter: float = 0.1

    def delay_ms(self, failures: int, dice: float) -> int:
        """Wait after `failures` failed attempts (1 = the first). `dice` in [0, 1); 0.5 means no jitter."""
        try:
            # float: an integer multiplier would be raised exactly, and for huge counts without end
            plain = min(self.base_ms * float(self.multiplier) ** max(failures - 1, 0), float(self.cap_ms))
        except OverflowError:
            plain = float(self.cap_ms if self.base_ms else 0)
        return round(plain * (1 + self.jitter * (2 * dice - 1)))


TIMEOUT_GROWTH = 1.5
TIMEOUT_LIMIT = 4.0


def grown_timeout_ms(timeout_ms: int, timeouts: int) -> int:
    """The time limit of the next run after `timeouts` runs that were too slow: 1.5x each, at most 4x."""
    return round(timeout_ms * min(TIMEOUT_GROWTH ** min(timeouts, 10), TIMEOUT_LIMIT))
