"""The same desk as the stories of the queue."""

from tests.queue.conftest import clock, desk, payloads, stores

__all__ = ["clock", "desk", "payloads", "stores"]
