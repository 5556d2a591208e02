"""The records, ports, and services of ADE that tests of many features use, so that a moved module changes one line."""

from ade.accounts.authentication import local_caller
from ade.accounts.authorization import RATES, RateClass
from ade.accounts.model import (
    Caller,
    InvalidAccount,
    InvalidToken,
    NotAuthenticated,
    Permission,
    Role,
    TooManyRequests,
    UnknownAccount,
    User,
)
from ade.accounts.passwords import HashCost
from ade.accounts.sessions import confirm, use_session
from ade.accounts.tokens import create_token, list_tokens, revoke_token, use_token
from ade.accounts.users import UserChanges, add_user, change_user, fingerprint, get_user, list_users, set_password
from ade.agents.conversations.durable_inbox import DurableInbox
from ade.agents.conversations.inbox import BlockedReason, ClearReason, Inbox, InboxChange, ReturnReason, unused
from ade.agents.conversations.model import InboxLimits
from ade.agents.conversations.rules import BatchClaimant
from ade.agents.model import Agent, AgentStatus
from ade.agents.profiles import BUILT_IN, ProtocolName
from ade.agents.runs.model import AgentProgress, AgentResult
from ade.app.functions import TaskFunction
from ade.approvals.errors import ReauthenticationNeeded
from ade.approvals.guard import GuardOccasion, GuardRulesVerdict
from ade.approvals.model import Decision, Delegation, Gate, GateState, Review
from ade.approvals.proof import ApprovalProof
from ade.approvals.rulebook import Rulebook
from ade.approvals.rulebook_document import read_rulebook
from ade.approvals.votes import VoteRequest
from ade.cli.exit_codes import ExitCode
from ade.client.client import Client
from ade.common.http.pool import HttpClient
from ade.composition.app_store import OpenStore
from ade.composition.stores import open_read_only, open_stores, upgrade_store
from ade.events.alerts import find_alerts, report_alerts
from ade.events.feed import events_after
from ade.events.metrics import Metrics
from ade.events.model import ALERT, FINAL_EVENTS, Event
from ade.events.prometheus import OPEN, PLAIN, REQUEST_BOUNDS, written
from ade.locks.client import StoreLockClient
from ade.locks.holder import LockHolder
from ade.locks.model import PRIORITIES, LockLimits, LockMode, LockRequest, LockSpec, read_priority
from ade.locks.requests import validate_request
from ade.server.context import RequestContext
from ade.server.health import FindingsVerdict, health, readiness
from ade.server.operation import AuthLevel, Route, TrafficClass, shape_of
from ade.server.pagination import Page
from ade.server.problems import RequestRefused, ServerProblem
from ade.server.request import CLIENT_GONE, HttpRequest, RequestMetrics
from ade.server.route_table import ROUTE_OF, ROUTES
from ade.server.wire_format import from_wire, plan_of, to_wire
from ade.settings.runtime import set_value
from ade.settings.sections import EventSettings, RedisSettings, StoreSettings, TaskSettings, WorkerSettings
from ade.stores.ports import DONE, RULES, STOP, WORK, ClaimRequest, EventLog, Stores, TaskPage, TaskQuery
from ade.stores.redis.client.options import parse_url
from ade.stores.redis.maintenance import RedisMaintenance
from ade.stores.redis.store import open_redis
from ade.stores.redis.tasks import RedisTasks
from ade.stores.resource_ports import Document, DocumentWrite, LockQuery, LockStore
from ade.stores.sqlite.schema import migrations
from ade.stores.sqlite.store import open_sqlite
from ade.tasks.admission import LAST_MOMENT, admit
from ade.tasks.arguments import Signature
from ade.tasks.changes import Change, ChangePrecondition, change
from ade.tasks.decisions import cancel, lose_lease, settle
from ade.tasks.enqueue import enqueue, fresh_id, uuid7
from ade.tasks.explain import explain
from ade.tasks.handlers import HandlerMode
from ade.tasks.identifiers import DELIVER, NOTIFY_PERSON, QUEUE, is_task_id
from ade.tasks.lifecycle import BIRTHS, CLAIMABLE, FINAL, Verb
from ade.tasks.model import AfterFailure, Definition, Effect, OutputLine, Queue, Schedule, Worker, is_past_retention
from ade.tasks.options import NewDefinition, NewTask
from ade.tasks.outcomes import Failed, Released, Succeeded
from ade.tasks.overview import overview
from ade.tasks.payloads import Payloads
from ade.tasks.read_access import ReadScope
from ade.webhooks.deliveries import DeliveryResponse, DeliveryTaskArguments
from ade.webhooks.destinations import NetworkPolicy, networks_of
from ade.webhooks.dispatch import deliver
from ade.webhooks.model import Webhook
from ade.worker.backend import WorkerOptions
from ade.worker.run import Run, StopReason
from ade.worker.state import WorkerState
from ade.worker.sweep import settle_due

__all__ = [
    "ALERT",
    "BIRTHS",
    "BUILT_IN",
    "CLAIMABLE",
    "CLIENT_GONE",
    "DELIVER",
    "DONE",
    "FINAL",
    "FINAL_EVENTS",
    "LAST_MOMENT",
    "NOTIFY_PERSON",
    "OPEN",
    "PLAIN",
    "PRIORITIES",
    "QUEUE",
    "RATES",
    "REQUEST_BOUNDS",
    "ROUTES",
    "ROUTE_OF",
    "RULES",
    "STOP",
    "WORK",
    "AfterFailure",
    "Agent",
    "AgentProgress",
    "AgentResult",
    "AgentStatus",
    "ApprovalProof",
    "AuthLevel",
    "BatchClaimant",
    "BlockedReason",
    "Caller",
    "Change",
    "ChangePrecondition",
    "ClaimRequest",
    "ClearReason",
    "Client",
    "Decision",
    "Definition",
    "Delegation",
    "DeliveryResponse",
    "DeliveryTaskArguments",
    "Document",
    "DocumentWrite",
    "DurableInbox",
    "Effect",
    "Event",
    "EventLog",
    "EventSettings",
    "ExitCode",
    "Failed",
    "FindingsVerdict",
    "Gate",
    "GateState",
    "GuardOccasion",
    "GuardRulesVerdict",
    "HandlerMode",
    "HashCost",
    "HttpClient",
    "HttpRequest",
    "Inbox",
    "InboxChange",
    "InboxLimits",
    "InvalidAccount",
    "InvalidToken",
    "LockHolder",
    "LockLimits",
    "LockMode",
    "LockQuery",
    "LockRequest",
    "LockSpec",
    "LockStore",
    "Metrics",
    "NetworkPolicy",
    "NewDefinition",
    "NewTask",
    "NotAuthenticated",
    "OpenStore",
    "OutputLine",
    "Page",
    "Payloads",
    "Permission",
    "ProtocolName",
    "Queue",
    "RateClass",
    "ReadScope",
    "ReauthenticationNeeded",
    "RedisMaintenance",
    "RedisSettings",
    "RedisTasks",
    "Released",
    "RequestContext",
    "RequestMetrics",
    "RequestRefused",
    "ReturnReason",
    "Review",
    "Role",
    "Route",
    "Rulebook",
    "Run",
    "Schedule",
    "ServerProblem",
    "Signature",
    "StopReason",
    "StoreLockClient",
    "StoreSettings",
    "Stores",
    "Succeeded",
    "TaskFunction",
    "TaskPage",
    "TaskQuery",
    "TaskSettings",
    "TooManyRequests",
    "TrafficClass",
    "UnknownAccount",
    "User",
    "UserChanges",
    "Verb",
    "VoteRequest",
    "Webhook",
    "Worker",
    "WorkerOptions",
    "WorkerSettings",
    "WorkerState",
    "add_user",
    "admit",
    "cancel",
    "change",
    "change_user",
    "confirm",
    "create_token",
    "deliver",
    "enqueue",
    "events_after",
    "explain",
    "find_alerts",
    "fingerprint",
    "fresh_id",
    "from_wire",
    "get_user",
    "health",
    "is_past_retention",
    "is_task_id",
    "list_tokens",
    "list_users",
    "local_caller",
    "lose_lease",
    "migrations",
    "networks_of",
    "open_read_only",
    "open_redis",
    "open_sqlite",
    "open_stores",
    "overview",
    "parse_url",
    "plan_of",
    "read_priority",
    "read_rulebook",
    "readiness",
    "report_alerts",
    "revoke_token",
    "set_password",
    "set_value",
    "settle",
    "settle_due",
    "shape_of",
    "to_wire",
    "unused",
    "upgrade_store",
    "use_session",
    "use_token",
    "uuid7",
    "validate_request",
    "written",
]
