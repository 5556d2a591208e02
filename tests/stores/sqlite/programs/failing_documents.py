"""Write one document over and over on a disk whose syncs fail: say, as JSON, what was met and what is there then."""

import asyncio
import json
import sys

from msgspec import Raw

from ade.errors import AdeError
from tests.domain import DocumentWrite, Event, StoreSettings, open_sqlite


async def main(path: str, count: int) -> None:
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0))
    met: list[str] = []
    for seen in range(count):
        write = DocumentWrite(kind="user", id="ada", body=Raw(b"%d" % seen), seen=seen)
        try:
            await stores.documents.write([write], [Event(type=f"user.changed_{seen}", at=0)])
        except AdeError as error:
            met.append(str(error))
    [document] = await stores.documents.list_documents("user")
    events = [event.type for event in await stores.events.read(0, 1_000)]
    await stores.close()
    print(json.dumps({"met": met, "version": document.version, "events": events}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
