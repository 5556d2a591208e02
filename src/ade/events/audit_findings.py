"""How the audit copy is, as far as its end tells: walking the whole chain takes its time."""

from ade.core.errors import AuditBroken, StoreError
from ade.events.audit import CURSOR, AuditPlace, look_at_end
from ade.events.lag import events_after
from ade.insight.findings import FAR_BEHIND, Finding, counted, ok, problem
from ade.ports import EventLog


async def of_audit(log: EventLog, place: AuditPlace) -> Finding:
    reached = await log.cursor(CURSOR)
    if not place.exists():
        if reached:
            return problem(
                "audit", f"the audit file is gone, and had reached entry {reached}", "see `ade audit verify`"
            )
        return ok("audit", "nothing was copied yet")
    try:
        async with place.open() as copy:
            head = await look_at_end(log, copy)
            behind = await events_after(log, head.seq, FAR_BEHIND + 1)
    except (AuditBroken, StoreError) as error:
        return problem("audit", error.detail, "see `ade audit verify`")
    return ok("audit", f"its end holds, {counted(behind)} behind", "`ade audit verify` walks all of it")
