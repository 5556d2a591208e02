"""A server that is told to stop: whoever is being answered gets his time, unless somebody is in a hurry."""

import asyncio
from pathlib import Path

from ade import Ade
from ade.common.http.pool import origin_of
from ade.composition.server import serve_http
from ade.settings import load

GRACE_S = 600.0


async def begin(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request of which the server has begun to read the body, and which never ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", origin_of(url).port)
    head = "POST /api/v1/sessions HTTP/1.1", f"host: {origin_of(url).authority}", "expect: 100-continue"
    more = "content-type: application/json", "content-length: 100", "", '{"name":'
    writer.write("\r\n".join((*head, *more)).encode())
    assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_a_hurry_ends_the_time_of_grace(tmp_path: Path) -> None:
    flags = {
        "store.url": f"sqlite:///{tmp_path / 'ade.db'}",
        "events.audit_url": f"sqlite:///{tmp_path / 'audit.db'}",
        "http.port": 0,
        "http.grace_s": GRACE_S,
    }
    hurry = asyncio.Event()
    async with Ade(settings=load(flags=flags, files=[]).settings) as app:
        async with asyncio.timeout(GRACE_S / 5):
            async with serve_http(app, hurry=hurry) as served:
                reader, writer = await begin(served.url)
                asyncio.get_running_loop().call_later(0.2, hurry.set)
            assert await reader.read() == b"", "nobody pretends that it was answered"
        writer.close()
