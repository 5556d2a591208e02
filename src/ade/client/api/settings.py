"""Calls of the section `settings`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from ade.calls.call import Call
    from ade.core.web.answers import Page
    from ade.insight.runtime import FeatureView, SettingView


class SettingsCalls(Section):
    def list_settings(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[SettingView]]:
        """Run-time settings, and where their values come from."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.settings import ListSettings
        from ade.insight.runtime import SettingView

        query = ListSettings(cursor=cursor, limit=limit)
        return self._call("list_settings", Page[SettingView], query=query)

    def get_setting(self, setting: str) -> Call[SettingView]:
        """One setting."""
        from ade.insight.runtime import SettingView

        return self._call("get_setting", SettingView, setting)

    def set_setting(self, setting: str, *, value: float, if_match: int | None = None) -> Call[SettingView]:
        """Change a setting while all goes on."""
        from ade.core.web.forms.settings import SetSetting
        from ade.insight.runtime import SettingView

        body = SetSetting(value=value)
        return self._call("set_setting", SettingView, setting, body=body, if_match=if_match)

    def unset_setting(self, setting: str) -> Call[SettingView]:
        """Go back to its default."""
        from ade.insight.runtime import SettingView

        return self._call("unset_setting", SettingView, setting)

    def list_features(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[FeatureView]]:
        """Features, and whether they are on."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.settings import ListFeatures
        from ade.insight.runtime import FeatureView

        query = ListFeatures(cursor=cursor, limit=limit)
        return self._call("list_features", Page[FeatureView], query=query)

    def get_feature(self, feature: str) -> Call[FeatureView]:
        """One feature."""
        from ade.insight.runtime import FeatureView

        return self._call("get_feature", FeatureView, feature)

    def switch_feature(self, feature: str, *, is_on: bool, if_match: int | None = None) -> Call[FeatureView]:
        """Switch a feature on or off."""
        from ade.core.web.forms.settings import SwitchFeature
        from ade.insight.runtime import FeatureView

        body = SwitchFeature(is_on=is_on)
        return self._call("switch_feature", FeatureView, feature, body=body, if_match=if_match)

    def unset_feature(self, feature: str) -> Call[FeatureView]:
        """Go back to its default."""
        from ade.insight.runtime import FeatureView

        return self._call("unset_feature", FeatureView, feature)
