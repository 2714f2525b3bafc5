"""FlowSchemas and PriorityLevelConfigurations. Source: flowcontrol.apiserver.k8s.io/v1."""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Condition, Object, ObjectMeta

EXEMPT = "exempt"
CATCH_ALL = "catch-all"
"""Names of the mandatory schemas and levels."""


class UserSubject(Object, frozen=True):
    name: str = ""


class GroupSubject(Object, frozen=True):
    name: str = ""


class ServiceAccountSubject(Object, frozen=True):
    namespace: str = ""
    name: str = ""


class Subject(Object, frozen=True):
    kind: str = ""
    user: UserSubject | None = None
    group: GroupSubject | None = None
    service_account: ServiceAccountSubject | None = None


class ResourcePolicyRule(Object, frozen=True):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    cluster_scope: bool = False
    namespaces: tuple[str, ...] = ()


class NonResourcePolicyRule(Object, frozen=True):
    verbs: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = field(default=(), name="nonResourceURLs")


class PolicyRulesWithSubjects(Object, frozen=True):
    subjects: tuple[Subject, ...] = ()
    resource_rules: tuple[ResourcePolicyRule, ...] = ()
    non_resource_rules: tuple[NonResourcePolicyRule, ...] = ()


class PriorityLevelReference(Object, frozen=True):
    name: str = ""


class DistinguisherMethod(Object, frozen=True):
    type: str = ""


class FlowSchemaSpec(Object, frozen=True):
    priority_level_configuration: PriorityLevelReference = PriorityLevelReference()
    matching_precedence: int = 0
    distinguisher_method: DistinguisherMethod | None = None
    rules: tuple[PolicyRulesWithSubjects, ...] = ()


class FlowSchemaStatus(Object, frozen=True):
    conditions: tuple[Condition, ...] = ()


class FlowSchema(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FlowSchemaSpec = FlowSchemaSpec()
    status: FlowSchemaStatus = FlowSchemaStatus()


class QueuingConfiguration(Object, frozen=True):
    queues: int = 0
    hand_size: int = 0
    queue_length_limit: int = 0


class LimitResponse(Object, frozen=True):
    type: str = ""
    queuing: QueuingConfiguration | None = None


class LimitedLevel(Object, frozen=True):
    nominal_concurrency_shares: int = 0
    limit_response: LimitResponse = LimitResponse()
    lendable_percent: int = 0
    borrowing_limit_percent: int | None = None


class ExemptLevel(Object, frozen=True):
    nominal_concurrency_shares: int = 0
    lendable_percent: int = 0


class PriorityLevelSpec(Object, frozen=True):
    type: str = ""
    limited: LimitedLevel | None = None
    exempt: ExemptLevel | None = None


class PriorityLevelConfiguration(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PriorityLevelSpec = PriorityLevelSpec()
