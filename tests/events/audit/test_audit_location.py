"""Where the audit copy lies: beside the database, in the working folder, or where a setting says."""

from pathlib import Path

import apsw
import pytest

from ade.composition.audit import audit_exists, open_audit
from ade.errors import InvalidUrl
from ade.stores.sqlite.audit import SqliteAudit
from tests.domain import Event

EVENT = Event(type="task.created", at=0, seq=1)


async def test_the_copy_of_a_store_that_is_no_file_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not audit_exists("redis://localhost")
    async with open_audit("redis://localhost") as copy:
        await copy.append([EVENT])
    assert audit_exists("redis://localhost")
    assert (tmp_path / ".ade" / "audit.db").exists()


async def test_a_setting_names_another_file(tmp_path: Path) -> None:
    audit_url = f"sqlite:///{tmp_path / 'far' / 'away.db'}"
    for store in (f"sqlite:///{tmp_path / 'ade.db'}", "redis://localhost", "memory://"):
        async with open_audit(store, audit_url) as copy:
            await copy.append([EVENT])
            assert await copy.count() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["far"]
    assert audit_exists("memory://", audit_url)


async def test_a_copy_in_memory_would_be_none() -> None:
    with pytest.raises(InvalidUrl, match="postgresql://"):
        async with open_audit("redis://localhost", "memory://"):
            pass


async def test_a_body_that_somebody_put_in_as_text_is_still_read(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    audit = SqliteAudit(file)
    await audit.append([EVENT])
    connection = apsw.Connection(str(file))
    connection.execute("DROP TRIGGER entry_is_never_changed; UPDATE entry SET body = replace(body, 'a', 'b')")
    connection.close()
    [entry] = await audit.entries(0, 1)
    await audit.close()
    assert isinstance(entry.body, bytes)
