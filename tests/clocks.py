"""What a test clock does not offer to users: all of time goes back, as on a server whose clock was set back."""

from ade.testing import TestClock


def set_back(clock: TestClock, seconds: float) -> None:
    """Set the wall clock and the steady clock back."""
    clock._wall_ms -= round(seconds * 1000)
    clock._steady_ms -= round(seconds * 1000)
