"""Calls: `webhooks`, `notifications`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from ade.common.calls import Call
    from ade.notifications.api import SentTests
    from ade.notifications.model import (
        BreakThrough,
        ChannelKind,
        ChannelView,
        ChannelWithSecret,
        NotificationDelivery,
        PreferencesView,
    )
    from ade.server.pagination import Page
    from ade.tasks.model import Task
    from ade.webhooks.deliveries import Delivery, DeliveryState
    from ade.webhooks.model import SelectTasks
    from ade.webhooks.views import WebhookView, WebhookWithSecret


class WebhooksCalls(Section):
    """Methods of the client: `webhooks`, `notifications`."""

    def list_webhooks(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[WebhookView]]:
        """Who is told about what, and how that goes."""
        from ade.server.pagination import Page
        from ade.webhooks.api import ListWebhooks
        from ade.webhooks.views import WebhookView

        query = ListWebhooks(cursor=cursor, limit=limit)
        return self._call("list_webhooks", Page[WebhookView], query=query)

    def create_webhook(
        self, *, url: str, events: list[str], description: str = "", secret: str | None = None,
        tasks: SelectTasks | None = None,
    ) -> Call[WebhookWithSecret]:
        """Tell an address about events; its secret is shown this once."""
        from ade.webhooks.api import NewWebhook
        from ade.webhooks.views import WebhookWithSecret

        body = NewWebhook(url=url, events=events, description=description, secret=secret, tasks=tasks)
        return self._call("create_webhook", WebhookWithSecret, body=body)

    def get_webhook(self, webhook_id: str) -> Call[WebhookView]:
        """One webhook."""
        from ade.webhooks.views import WebhookView

        return self._call("get_webhook", WebhookView, webhook_id)

    def change_webhook(
        self, webhook_id: str, *, url: str | None = None, events: list[str] | None = None,
        description: str | None = None, tasks: SelectTasks | None = None, is_active: bool | None = None,
        reason: str | None = None, if_match: int | None, request_key: str | None = None,
    ) -> Call[WebhookView]:
        """Change address, events, or whether it is on."""
        from ade.webhooks.api import ChangeWebhook
        from ade.webhooks.views import WebhookView

        body = ChangeWebhook(
            url=url, events=events, description=description, tasks=tasks, is_active=is_active, reason=reason,
        )
        return self._call("change_webhook", WebhookView, webhook_id, body=body, if_match=if_match, key=request_key)

    def remove_webhook(self, webhook_id: str) -> Call[None]:
        """Remove a webhook."""
        return self._call("remove_webhook", type(None), webhook_id)

    def rotate_webhook_secret(
        self, webhook_id: str, *, overlap_s: float = 86400.0, secret: str | None = None,
    ) -> Call[WebhookWithSecret]:
        """Give it a new secret; the old one ends later."""
        from ade.webhooks.api import RotateSecret
        from ade.webhooks.views import WebhookWithSecret

        body = RotateSecret(overlap_s=overlap_s, secret=secret)
        return self._call("rotate_webhook_secret", WebhookWithSecret, webhook_id, body=body)

    def test_webhook(self, webhook_id: str, *, request_key: str | None = None) -> Call[WebhookView]:
        """Send a test event."""
        from ade.server.request_types import Nothing
        from ade.webhooks.views import WebhookView

        body = Nothing()
        return self._call("test_webhook", WebhookView, webhook_id, body=body, key=request_key)

    def list_deliveries(
        self, webhook_id: str, *, state: DeliveryState | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Delivery]]:
        """What was sent, and how it was answered."""
        from ade.server.pagination import Page
        from ade.webhooks.api import ListDeliveries
        from ade.webhooks.deliveries import Delivery

        query = ListDeliveries(state=state, cursor=cursor, limit=limit)
        return self._call("list_deliveries", Page[Delivery], webhook_id, query=query)

    def get_delivery(self, webhook_id: str, delivery_id: str) -> Call[Delivery]:
        """One delivery with its tries."""
        from ade.webhooks.deliveries import Delivery

        return self._call("get_delivery", Delivery, webhook_id, delivery_id)

    def replay_delivery(self, webhook_id: str, delivery_id: str, *, request_key: str | None = None) -> Call[Task]:
        """Send it again."""
        from ade.server.request_types import Nothing
        from ade.tasks.model import Task

        body = Nothing()
        return self._call("replay_delivery", Task, webhook_id, delivery_id, body=body, key=request_key)

    def list_channels(
        self, *, account: str | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[ChannelView]]:
        """The channels of a person, without the secret parts of URLs."""
        from ade.notifications.api import ListChannels
        from ade.notifications.model import ChannelView
        from ade.server.pagination import Page

        query = ListChannels(account=account, cursor=cursor, limit=limit)
        return self._call("list_channels", Page[ChannelView], query=query)

    def create_channel(
        self, *, kind: ChannelKind, target: str, label: str = "", secret: str | None = None,
        account: str | None = None,
    ) -> Call[ChannelWithSecret]:
        """Notify a person through another channel from now on, in a session with a recent password check."""
        from ade.notifications.api import NewChannel
        from ade.notifications.model import ChannelWithSecret

        body = NewChannel(kind=kind, target=target, label=label, secret=secret, account=account)
        return self._call("create_channel", ChannelWithSecret, body=body)

    def remove_channel(self, channel_id: str) -> Call[None]:
        """Remove a channel, in a session with a recent password check."""
        return self._call("remove_channel", type(None), channel_id)

    def get_notification_preferences(self, *, account: str | None = None) -> Call[PreferencesView]:
        """When a person is notified: time zone, quiet hours, and digest."""
        from ade.notifications.api import OfAccount
        from ade.notifications.model import PreferencesView

        query = OfAccount(account=account)
        return self._call("get_notification_preferences", PreferencesView, query=query)

    def change_notification_preferences(
        self, *, account: str | None = None, time_zone: str | None = None, quiet_hours: str | None = None,
        break_through: BreakThrough | None = None, digest_every_s: int | None = None,
        digest_at: list[str] | None = None, request_key: str | None = None,
    ) -> Call[PreferencesView]:
        """Change when a person is notified, in a session with a recent password check."""
        from ade.notifications.api import ChangePreferences
        from ade.notifications.model import PreferencesView

        body = ChangePreferences(
            account=account, time_zone=time_zone, quiet_hours=quiet_hours, break_through=break_through,
            digest_every_s=digest_every_s, digest_at=digest_at,
        )
        return self._call("change_notification_preferences", PreferencesView, body=body, key=request_key)

    def test_notification(self, *, account: str | None = None, channel: str | None = None) -> Call[SentTests]:
        """Send a test message."""
        from ade.notifications.api import SentTests, TestNotification

        body = TestNotification(account=account, channel=channel)
        return self._call("test_notification", SentTests, body=body)

    def list_notifications(
        self, *, account: str | None = None, state: DeliveryState | None = None, cursor: str | None = None,
        limit: int = 50,
    ) -> Call[Page[NotificationDelivery]]:
        """The messages to a person, newest first, with every attempt to send them."""
        from ade.notifications.api import ListNotifications
        from ade.notifications.model import NotificationDelivery
        from ade.server.pagination import Page

        query = ListNotifications(account=account, state=state, cursor=cursor, limit=limit)
        return self._call("list_notifications", Page[NotificationDelivery], query=query)

    def get_notification(self, delivery_id: str, *, account: str | None = None) -> Call[NotificationDelivery]:
        """One message to a person, with every attempt to send it."""
        from ade.notifications.api import OfAccount
        from ade.notifications.model import NotificationDelivery

        query = OfAccount(account=account)
        return self._call("get_notification", NotificationDelivery, delivery_id, query=query)
