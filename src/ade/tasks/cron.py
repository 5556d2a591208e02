"""When a cron line fires next. Missed firings are coalesced into one."""

import re
from datetime import UTC, datetime

from msgspec import structs

from ade.errors import InvalidSchedule
from ade.locks.model import check_priority
from ade.tasks.admission import check_name, check_queue_name
from ade.tasks.model import Schedule

_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,50}(?:/[A-Za-z0-9_+-]{1,50}){0,3}")


def next_fire_ms(cron: str, timezone: str, after_ms: int) -> int:
    """The first moment after `after_ms` at which the line fires; InvalidSchedule if it never does."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # both are large, and many have no schedule at all

    from cronsim import CronSim, CronSimError

    try:
        # ZoneInfo follows whatever is between slashes as a folder and as a package, however deep.
        zone = ZoneInfo(timezone if _ZONE.fullmatch(timezone) else "")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidSchedule(
            f"time zone {timezone[:60]!r} is unknown; use an IANA name such as Europe/Berlin"
        ) from None
    start = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(zone)
    try:
        moments = (int(moment.timestamp() * 1000) for moment in CronSim(cron, start))
        # During the second pass of autumn's double hour, CronSim may name a moment of the first one.
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
    """The schedule as it will be stored: checked, with its next firing."""
    check_name(schedule.task_name)
    check_queue_name(schedule.queue)
    check_priority(schedule.priority)
    if not schedule.name or len(schedule.name) > 200 or not schedule.name.isprintable():
        raise InvalidSchedule("a schedule needs a name of 1 to 200 printable characters")
    return structs.replace(schedule, next_at=next_fire_ms(schedule.cron, schedule.timezone, now), updated_at=now)


def firing_key(schedule: Schedule) -> str:
    """The idempotency key of the task this firing creates: one task however many processes fire it."""
    return f"schedule/{schedule.name}/{schedule.next_at}"


def fired(schedule: Schedule, task_id: str, *, now: int) -> Schedule:
    """The schedule after its due firing: what was missed meanwhile is skipped."""
    following = next_fire_ms(schedule.cron, schedule.timezone, max(now, schedule.next_at))
    return structs.replace(schedule, last_at=schedule.next_at, last_task_id=task_id, next_at=following, updated_at=now)
