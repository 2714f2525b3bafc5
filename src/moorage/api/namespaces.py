"""Namespaces. Source: core/v1 `Namespace`."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, Raw


class NamespaceSpec(Object, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Object, frozen=True):
    phase: str = ""
    conditions: tuple[Raw, ...] = ()


class Namespace(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()
