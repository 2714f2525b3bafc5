"""ResourceQuotas and LimitRanges, as admission and controllers read them. Source: core/v1."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, Raw


class ScopedSelector(Object, frozen=True):
    """`ScopedResourceSelectorRequirement`."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Object, frozen=True):
    match_expressions: tuple[ScopedSelector, ...] = ()


class ResourceQuotaSpec(Object, frozen=True):
    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None

    @property
    def selectors(self) -> tuple[ScopedSelector, ...]:
        """All scopes as selectors; an object is subject to the quota if all of them match."""
        plain = tuple(ScopedSelector(scope_name=scope, operator="Exists") for scope in self.scopes)
        more = self.scope_selector.match_expressions if self.scope_selector is not None else ()
        return plain + more


class ResourceQuotaStatus(Object, frozen=True):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(Object, frozen=True):
    type: str = ""
    max: dict[str, str] = {}
    min: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}


class LimitRangeSpec(Object, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ClaimResources(Object, frozen=True):
    requests: dict[str, str] = {}


class ClaimSpec(Object, frozen=True):
    resources: ClaimResources = ClaimResources()
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(Object, frozen=True):
    target_volume_attributes_class_name: str = ""


class ClaimStatus(Object, frozen=True):
    allocated_resources: dict[str, str] = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(Object, frozen=True):
    """A claim as far as it is charged."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class Counted(Object, frozen=True):
    """An object that is only counted."""

    metadata: Raw = {}
