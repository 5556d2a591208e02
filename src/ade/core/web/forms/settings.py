"""What is said about run-time settings and features."""

from ade.core.web.forms.tasks import Form, PageSize


class ListSettings(Form):
    cursor: str | None = None
    limit: PageSize = 50


class SetSetting(Form):
    value: float


class ListFeatures(Form):
    cursor: str | None = None
    limit: PageSize = 50


class SwitchFeature(Form):
    is_on: bool
