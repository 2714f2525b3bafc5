"""Leases: heartbeats and leader election. Source: coordination.k8s.io/v1."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta


class LeaseSpec(Object, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
