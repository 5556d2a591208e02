"""A holder that is frozen past its lease: the next one has the lock in time, and the late write is refused."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ade import Ade, Fence, Settings, StaleToken
from tests.domain import RedisSettings, StoreSettings
from tests.servers.pool import POOL

pytestmark = pytest.mark.faults

HOLDER = """
import sys, time
from ade import Ade, LockLost, Settings
from ade.settings.sections import RedisSettings, StoreSettings

settings = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))
app = Ade(sys.argv[1], settings=settings)
with app.lock("repo:app", ttl=1) as held:
    token = held.token()
    print(token, flush=True)
    sys.stdin.readline()  # frozen here
    try:
        held.check()
        print("held", flush=True)
    except LockLost:
        print("lost", flush=True)
"""
PLACES: Mapping[str, Callable[[Path], str]] = {
    "file": lambda folder: f"sqlite:///{folder / 'ade.db'}",
    "server": lambda _: POOL.standalone("valkey").url,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_frozen_holder_notices_at_wake_up_and_its_write_is_refused(place: str, tmp_path: Path) -> None:
    url, fence = PLACES[place](tmp_path), Fence()
    settings = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))
    app = Ade(url, settings=settings)
    command = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            old_token = int(holder.stdout.readline())
            fence.check("repo:app", old_token)
            holder.send_signal(signal.SIGSTOP)
            frozen_at = time.monotonic()
            with app.lock("repo:app", wait=60) as held:
                waited = time.monotonic() - frozen_at
                fence.check("repo:app", held.token())
                holder.send_signal(signal.SIGCONT)
                holder.stdin.write("go on\n")
                holder.stdin.flush()
                assert holder.stdout.readline() == "lost\n"
                with pytest.raises(StaleToken):
                    fence.check("repo:app", old_token)
        finally:
            holder.kill()
            app.close().wait()
    assert waited < 20, "a lease of one second, and a look every second; as long as usual it would be thirty"
