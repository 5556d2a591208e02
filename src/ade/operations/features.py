"""Features: what is on or off, for all processes."""

from ade.core.web.forms.settings import ListFeatures, SwitchFeature
from ade.governance import runtime
from ade.governance.runtime_names import IN_FILES
from ade.insight.runtime import FeatureView, see_features
from ade.operations.acting import acting
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut


async def list_features(office: Office, asked: Asked, query: ListFeatures) -> Page[FeatureView]:
    return cut("features", query, list((await _seen(office)).values()))


async def get_feature(office: Office, asked: Asked, feature: str) -> FeatureView:
    runtime.check_feature(feature)
    return (await _seen(office))[feature]


async def switch_feature(office: Office, asked: Asked, feature: str, body: SwitchFeature) -> FeatureView:
    before = await get_feature(office, asked, feature)
    asked.check_version(before.version)
    seen = None if asked.if_match is None else before.version
    await runtime.switch(office.stores, feature, body.is_on, actor=acting(asked), seen=seen)
    return await get_feature(office, asked, feature)


async def unset_feature(office: Office, asked: Asked, feature: str) -> FeatureView:
    runtime.check_feature(feature)
    await runtime.unset(office.stores, feature, actor=acting(asked))
    return await get_feature(office, asked, feature)


async def _seen(office: Office) -> dict[str, FeatureView]:
    said = dict(office.settings.items())
    return await see_features(office.stores, {feature: bool(said[name]) for feature, name in IN_FILES.items()})
