"""Cron expressions: validation and the next firing. Missed firings are coalesced into one."""

import re
from datetime import UTC, datetime

from msgspec import structs

from ade.errors import InvalidSchedule
from ade.locks.model import check_priority
from ade.tasks.admission import check_name, check_queue_name
from ade.tasks.model import Schedule

_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,50}(?:/[A-Za-z0-9_+-]{1,50}){0,3}")


def next_fire_ms(cron: str, timezone: str, after_ms: int) -> int:
    """Return the first firing after `after_ms`. Raises InvalidSchedule if the expression is invalid or never fires."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # both are slow to import, and many apps have no schedule

    from cronsim import CronSim, CronSimError

    try:
        # ZoneInfo resolves every part between slashes as a directory and as a package, at any depth.
        zone = ZoneInfo(timezone if _ZONE.fullmatch(timezone) else "")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidSchedule(
            f"time zone {timezone[:60]!r} is unknown; use an IANA name such as Europe/Berlin"
        ) from None
    start = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(zone)
    try:
        moments = (int(moment.timestamp() * 1000) for moment in CronSim(cron, start))
        # In the repeated hour at the end of DST, CronSim can return a time from the first pass.
        fires_at = next((moment for moment in moments if moment > after_ms), None)
    except (CronSimError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InvalidSchedule(
            f"cron line {cron[:80]!r} is not valid or never fires ({error}); "
            "use five fields: minute hour day month weekday"
        ) from None
    if fires_at is None:
        raise InvalidSchedule(f"cron line {cron[:80]!r} never fires; check its day and month")
    return fires_at


def plan(schedule: Schedule, *, now: int) -> Schedule:
    """Return the schedule as it is stored: validated, with its next firing. Raises InvalidSchedule and InvalidTask."""
    check_name(schedule.task_name)
    check_queue_name(schedule.queue)
    check_priority(schedule.priority)
    if not schedule.name or len(schedule.name) > 200 or not schedule.name.isprintable():
        raise InvalidSchedule("a schedule needs a name of 1 to 200 printable characters")
    return structs.replace(schedule, next_at=next_fire_ms(schedule.cron, schedule.timezone, now), updated_at=now)


def firing_key(schedule: Schedule) -> str:
    """Return the idempotency key of this firing: one task, no matter how many processes fire it."""
    return f"schedule/{schedule.name}/{schedule.next_at}"


def fired(schedule: Schedule, task_id: str, *, now: int) -> Schedule:
    """Return the schedule after its due firing; firings missed in the meantime are skipped."""
    following = next_fire_ms(schedule.cron, schedule.timezone, max(now, schedule.next_at))
    return structs.replace(schedule, last_at=schedule.next_at, last_task_id=task_id, next_at=following, updated_at=now)
