"""Run-time settings and features over the operations."""

import pytest
from msgspec.structs import replace

from ade.approvals.errors import InvalidSetting, UnknownSetting
from ade.errors import NotPermitted, StaleWrite
from ade.settings import api as settings_api
from ade.settings import runtime
from ade.settings.api import ListFeatures, ListSettings, SetSetting, SettingOrigin, SwitchFeature
from ade.settings.runtime import FEATURES, SETTINGS
from tests.domain import RequestRefused, Role
from tests.server.operations import LOCAL, Operations
from tests.stores.interleaved_writes import meanwhile


async def test_a_setting_is_set_seen_and_taken_back(ops: Operations) -> None:
    root = await ops.account("root", Role.ADMIN)
    before = await settings_api.get_setting(ops.services, LOCAL, "risk.high")
    assert (before.value, before.origin, before.version, before.changed_at) == (50, SettingOrigin.DEFAULT, 0, None)

    request = ops.request(root, "set_setting")
    after = await settings_api.set_setting(ops.services, request, "risk.high", SetSetting(value=60))
    assert (after.value, after.origin, after.changed_by, after.changed_at) == (
        *(60, SettingOrigin.STORE, "root"),
        ops.clock.now(),
    )
    assert (after.least, after.most, after.default) == (0, 100, 50)
    assert await settings_api.get_setting(ops.services, LOCAL, "risk.high") == after

    assert await settings_api.unset_setting(ops.services, LOCAL, "risk.high") == before
    assert await settings_api.unset_setting(ops.services, LOCAL, "risk.high") == before
    told = [event for event in await ops.services.stores.events.read(0, 100) if event.type == runtime.SETTING_CHANGED]
    assert [(event.actor, event.payload["new"]) for event in told] == [("root", 60), ("tester", None)]


async def test_all_of_them_are_listed_page_by_page(ops: Operations) -> None:
    await settings_api.set_setting(ops.services, LOCAL, "risk.high", SetSetting(value=60))
    first = await settings_api.list_settings(ops.services, LOCAL, ListSettings(limit=6))
    second = await settings_api.list_settings(ops.services, LOCAL, ListSettings(limit=6, cursor=first.next))

    listed = [*first.items, *second.items]
    assert ([each.name for each in listed], second.next) == (list(SETTINGS), None)
    assert [each.name for each in listed if each.origin is SettingOrigin.STORE] == ["risk.high"]


async def test_what_cannot_be_set_is_refused_and_nothing_is_stored(ops: Operations) -> None:
    with pytest.raises(UnknownSetting):
        await settings_api.set_setting(ops.services, LOCAL, "batch_approvals", SetSetting(value=1))
    with pytest.raises(UnknownSetting):
        await settings_api.unset_setting(ops.services, LOCAL, "batch_approvals")  # a feature is no setting
    with pytest.raises(UnknownSetting):
        await settings_api.switch_feature(ops.services, LOCAL, "risk.high", SwitchFeature(is_on=True))
    for name, value in (("risk.high", 101.0), ("risk.high", float("nan")), ("risk.high", 10.0)):
        with pytest.raises(InvalidSetting):
            await settings_api.set_setting(ops.services, LOCAL, name, SetSetting(value=value))
    assert await runtime.load(ops.services.stores) == runtime.RuntimeSettings()


async def test_who_names_a_version_writes_over_nothing_else(ops: Operations) -> None:
    root = await ops.account("root", Role.ADMIN)
    unset = ops.request(root, "set_setting", if_match='"0"')
    first = await settings_api.set_setting(ops.services, unset, "risk.high", SetSetting(value=60))
    with pytest.raises(RequestRefused):
        await settings_api.set_setting(ops.services, unset, "risk.high", SetSetting(value=70))

    seen = ops.request(root, "set_setting", if_match=f'"{first.version}"')
    second = await settings_api.set_setting(ops.services, seen, "risk.high", SetSetting(value=70))
    assert second.version > first.version

    async def another() -> None:
        await runtime.set_value(ops.services.stores, "risk.high", 55, actor="bob")

    seen = ops.request(root, "set_setting", if_match=f'"{second.version}"')
    late = replace(ops.services, stores=meanwhile(ops.services.stores, another))
    with pytest.raises(StaleWrite):
        await settings_api.set_setting(late, seen, "risk.high", SetSetting(value=65))
    assert (await settings_api.get_setting(ops.services, LOCAL, "risk.high")).value == 55

    late = replace(ops.services, stores=meanwhile(ops.services.stores, another))
    after = await settings_api.set_setting(late, LOCAL, "risk.high", SetSetting(value=65))
    assert after.value == 65  # who names none wants this, whatever there was


async def test_features_are_switched_and_taken_back(ops: Operations) -> None:
    root = await ops.account("root", Role.ADMIN)
    listed = await settings_api.list_features(ops.services, LOCAL, ListFeatures())
    assert [(each.name, each.is_on) for each in listed.items] == [(n, f.default) for n, f in FEATURES.items()]

    request = ops.request(root, "switch_feature", if_match='"0"')
    after = await settings_api.switch_feature(ops.services, request, "auto_approve_low_risk", SwitchFeature(is_on=True))
    assert (after.is_on, after.origin, after.changed_by) == (True, SettingOrigin.STORE, "root")
    with pytest.raises(RequestRefused):
        await settings_api.switch_feature(ops.services, request, "auto_approve_low_risk", SwitchFeature(is_on=False))

    back = await settings_api.unset_feature(ops.services, LOCAL, "auto_approve_low_risk")
    assert (back.is_on, back.origin, back.version) == (False, SettingOrigin.DEFAULT, 0)
    with pytest.raises(UnknownSetting):
        await settings_api.get_feature(ops.services, LOCAL, "auto")


async def test_only_admins_change_them_and_all_may_look(ops: Operations) -> None:
    for role in (Role.VIEWER, Role.OPERATOR, Role.AGENT):
        user = await ops.account(f"a-{role}", role)
        listed = await settings_api.list_features(ops.services, ops.request(user, "list_features"), ListFeatures())
        assert len(listed.items) == len(FEATURES)
        for operation in ("set_setting", "unset_setting", "switch_feature", "unset_feature"):
            with pytest.raises(NotPermitted):
                ops.request(user, operation)
