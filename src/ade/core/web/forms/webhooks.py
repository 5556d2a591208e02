"""What is said about webhooks."""

from typing import Annotated

from msgspec import Meta

from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import EventPattern, HttpsUrl, told
from ade.core.webhooks.deliveries import State

_DAY_S = 86_400.0


class ListWebhooks(Form):
    cursor: str | None = None
    limit: PageSize = 50


class NewWebhook(Form):
    """`events` are types such as `task.failed`, all of a kind as `task.*`, or `*`. A secret is made if none is told."""

    url: HttpsUrl
    events: Annotated[list[EventPattern], told(minItems=1, maxItems=50)]
    description: str = ""
    secret: str | None = None


class ChangeWebhook(Form):
    """What is not said stays as it is."""

    url: HttpsUrl | None = None
    events: Annotated[list[EventPattern], told(minItems=1, maxItems=50)] | None = None
    description: str | None = None
    is_active: bool | None = None
    reason: str | None = None  # why it is switched off


class RotateSecret(Form):
    """How long the old secret signs too: no time at all for one that has leaked. A secret is made if none is given."""

    overlap_s: Annotated[float, Meta(ge=0, le=7 * _DAY_S)] = _DAY_S
    secret: str | None = None


class ListDeliveries(Form):
    state: State | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50  # each has all its attempts with it
