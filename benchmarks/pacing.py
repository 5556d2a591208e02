"""Calls made at given moments, for the contestants whose clients block."""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def random_moments(rate: float, seconds: float, seed: int) -> list[float]:
    """About `rate` moments a second at random distances, so that no polling interval can fall in step."""
    dice = random.Random(seed)
    moments: list[float] = []
    moment = 0.0
    while (moment := moment + dice.uniform(0.2, 1.8) / rate) < seconds:
        moments.append(moment)
    return moments


def call_at(put: Callable[[str], object], moments: Sequence[float], texts: Sequence[str]) -> list[int]:
    """Call `put` with each text at its moment; return the monotonic nanoseconds before each call."""
    began = time.monotonic()
    calls: list[int] = []
    for moment, text in zip(moments, texts, strict=True):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        calls.append(time.monotonic_ns())
        put(text)
    return calls


def time_calls(put: Callable[[str], object], texts: Sequence[str]) -> float:
    """Seconds that one caller needs for all texts."""
    began = time.perf_counter()
    for text in texts:
        put(text)
    return time.perf_counter() - began


def time_threaded_calls(put: Callable[[str], object], texts: Sequence[str], callers: int) -> float:
    """Seconds that `callers` threads need together for all texts."""
    shares = [texts[start::callers] for start in range(callers)]
    with ThreadPoolExecutor(callers) as pool:
        began = time.perf_counter()
        for finished in [pool.submit(time_calls, put, share) for share in shares]:
            finished.result()
        return time.perf_counter() - began
