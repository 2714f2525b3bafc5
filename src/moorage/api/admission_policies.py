"""ValidatingAdmissionPolicies, as their status controller reads them.

Source: admissionregistration.k8s.io/v1.
"""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, Raw


class PolicyRule(Object, frozen=True):
    """`NamedRuleWithOperations`, without what has no part in types."""

    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class MatchConstraints(Object, frozen=True):
    """`MatchResources`, without what has no part in types."""

    resource_rules: tuple[PolicyRule, ...] = ()


class ParamKind(Object, frozen=True):
    api_version: str = ""
    kind: str = ""


class Expressions(Object, frozen=True):
    """The parts of a specification that type checking reads; `variables` and so on are JSON."""

    match_constraints: MatchConstraints = MatchConstraints()
    param_kind: ParamKind | None = None
    variables: tuple[Raw, ...] = ()
    validations: tuple[Raw, ...] = ()


class PolicyStatus(Object, frozen=True):
    observed_generation: int = 0


class ValidatingAdmissionPolicy(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Expressions = Expressions()
    status: PolicyStatus = PolicyStatus()
