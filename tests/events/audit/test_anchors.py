"""Anchors of the audit chain: what is written, and what someone who rewrites the whole chain cannot hide."""

from pathlib import Path

import pytest

from ade.composition import worker as worker_composition
from ade.errors import AuditBroken
from ade.events import audit_anchors, audit_chain, audit_copy
from ade.settings import SettingsError, load, sections
from ade.tasks import model as tasks_model
from tests.domain import Stores
from tests.events.audit.copies import Place

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def settings(tmp_path: Path) -> sections.EventSettings:
    (tmp_path / "anchor.key").write_bytes(KEY + b"\n")
    file, key = str(tmp_path / "far" / "anchors.jsonl"), str(tmp_path / "anchor.key")
    return sections.EventSettings(anchor_every_s=60, anchor_file=file, anchor_key_file=key)


async def _something_happens(stores: Stores, number: int) -> None:
    await stores.tasks.add([tasks_model.Task(id=f"00000000-0000-7000-8000-{number:012}", name="pack")])


async def _hash_at(copy: audit_copy.AuditCopy, seq: int) -> str | None:
    return await audit_anchors.copied_hash(copy, seq)


async def test_the_head_is_an_event_and_a_signed_line(
    stores: Stores, audit: audit_copy.AuditCopy, settings: sections.EventSettings
) -> None:
    await _something_happens(stores, 1)
    await audit_anchors.AnchorJob(stores, audit, settings).anchor()
    [anchor] = audit_anchors.read_anchors(settings.anchor_file or "", KEY)
    [event] = await stores.events.read(anchor.seq, 10)
    assert (event.type, event.payload) == ("audit.anchored", {"seq": anchor.seq, "hash": anchor.hash})
    assert (await audit.head()) == audit_chain.AuditHead(anchor.seq, anchor.hash)
    await audit_anchors.check_anchors([anchor], lambda seq: _hash_at(audit, seq))


async def test_no_anchor_is_made_while_nothing_happens(
    stores: Stores, audit: audit_copy.AuditCopy, settings: sections.EventSettings
) -> None:
    job = audit_anchors.AnchorJob(stores, audit, settings)
    await job.anchor()
    assert not Path(settings.anchor_file or "").exists()
    await _something_happens(stores, 1)
    for _ in range(3):
        await job.anchor()
    assert len(audit_anchors.read_anchors(settings.anchor_file or "", KEY)) == 1
    await _something_happens(stores, 2)
    await job.anchor()
    assert len(audit_anchors.read_anchors(settings.anchor_file or "", KEY)) == 2


async def test_a_chain_that_was_written_anew_lacks_the_anchored_head(
    stores: Stores, audit: audit_copy.AuditCopy, settings: sections.EventSettings, place: Place
) -> None:
    """Every link of the new chain is right; only the anchor tells that it is another one."""
    await _something_happens(stores, 1)
    await audit_anchors.AnchorJob(stores, audit, settings).anchor()
    while await audit_copy.copy_events(stores.events, audit):
        pass
    place.tamper(f"UPDATE {place.table} SET hash = 'another' WHERE seq = 1")
    anchors = audit_anchors.read_anchors(settings.anchor_file or "", KEY)
    with pytest.raises(AuditBroken, match=r"entry 1 was anchored .* the copy was rewritten"):
        await audit_anchors.check_anchors(anchors, lambda seq: _hash_at(audit, seq))
    place.tamper(f"DELETE FROM {place.table}") if place.audit_url else place.execute(f"DELETE FROM {place.table}")
    with pytest.raises(AuditBroken, match="the chain has no such entry"):
        await audit_anchors.check_anchors(anchors, lambda seq: _hash_at(audit, seq))


async def test_an_edited_line_is_found(
    stores: Stores, audit: audit_copy.AuditCopy, settings: sections.EventSettings
) -> None:
    await _something_happens(stores, 1)
    await audit_anchors.AnchorJob(stores, audit, settings).anchor()
    file = Path(settings.anchor_file or "")
    [anchor] = audit_anchors.read_anchors(str(file), KEY)
    with pytest.raises(AuditBroken, match=r"signature of .*:1 is not valid"):
        audit_anchors.read_anchors(str(file), b"the key of someone else")
    file.write_text(file.read_text().replace(anchor.hash[:8], "00000000"))
    with pytest.raises(AuditBroken, match=r"signature of .*:1 is not valid"):
        audit_anchors.read_anchors(str(file), KEY)
    file.write_text("not an anchor\n")
    with pytest.raises(AuditBroken, match=":1 is not an anchor"):
        audit_anchors.read_anchors(str(file), KEY)


def test_a_missing_or_short_key_and_an_unwritable_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no key signs anchors"):
        audit_anchors.read_key(None)
    with pytest.raises(SettingsError, match="cannot be read"):
        audit_anchors.read_key(str(tmp_path / "nowhere"))
    (tmp_path / "short").write_text("1234")
    with pytest.raises(SettingsError, match="shorter than 16 bytes"):
        audit_anchors.read_key(str(tmp_path / "short"))
    with pytest.raises(SettingsError, match=r"needs events\.anchor_key_file"):
        load(flags={"events.anchor_file": "anchors.jsonl"}, files=[])
    with pytest.raises(SettingsError, match="cannot be read"):
        audit_anchors.read_anchors(str(tmp_path / "nowhere"), KEY)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="could not be written"):
        audit_anchors.append_anchor(
            str(tmp_path / "file" / "below"), audit_anchors.signed_anchor(audit_chain.AuditHead(1, "x"), KEY, at=1)
        )


async def test_a_worker_anchors_only_where_the_settings_say_so(stores: Stores, place: Place) -> None:
    for events, names in (
        (sections.EventSettings(), ["audit"]),
        (sections.EventSettings(anchor_every_s=60), ["audit", "anchors"]),
    ):
        async with worker_composition.audit_jobs(place.url, stores, place.audit_url, events) as jobs:
            assert [job.name for job in jobs] == names
