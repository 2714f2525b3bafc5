"""Roles and their bindings. Source: rbac.authorization.k8s.io/v1."""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Object, ObjectMeta, Raw


class PolicyRule(Object, frozen=True):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = field(default=(), name="nonResourceURLs")


class AggregationRule(Object, frozen=True):
    cluster_role_selectors: tuple[Raw, ...] = ()


class ClusterRole(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    rules: tuple[PolicyRule, ...] | None = ()
    aggregation_rule: AggregationRule | None = None


class Subject(Object, frozen=True):
    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(Object, frozen=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class ClusterRoleBinding(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()


class Role(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    rules: tuple[PolicyRule, ...] | None = ()


class RoleBinding(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()
