"""Run-time settings: numbers that are kept in the store, for all processes."""

from ade.core.web.forms.settings import ListSettings, SetSetting
from ade.governance import runtime
from ade.insight.runtime import SettingView, see_settings
from ade.operations.acting import acting
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut


async def list_settings(office: Office, asked: Asked, query: ListSettings) -> Page[SettingView]:
    return cut("settings", query, list((await see_settings(office.stores)).values()))


async def get_setting(office: Office, asked: Asked, setting: str) -> SettingView:
    runtime.check_setting(setting)
    return (await see_settings(office.stores))[setting]


async def set_setting(office: Office, asked: Asked, setting: str, body: SetSetting) -> SettingView:
    before = await get_setting(office, asked, setting)
    asked.check_version(before.version)
    seen = None if asked.if_match is None else before.version
    await runtime.set_value(office.stores, setting, body.value, actor=acting(asked), seen=seen)
    return await get_setting(office, asked, setting)


async def unset_setting(office: Office, asked: Asked, setting: str) -> SettingView:
    runtime.check_setting(setting)
    await runtime.unset(office.stores, setting, actor=acting(asked))
    return await get_setting(office, asked, setting)
