"""Deletion decisions: the effect of a delete request on an object, as a pure function.

Source: apiserver `registry/generic` graceful deletion, API docs "Garbage Collection" (propagation
policies as finalizers).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec

from moorage.api.clock import format_time, parse_time
from moorage.api.errors import ConflictError, FieldError, InvalidError, StatusError
from moorage.apiserver.registry.kind import Kind, Obj

FOREGROUND = "Foreground"
BACKGROUND = "Background"
ORPHAN = "Orphan"
POLICIES = (FOREGROUND, BACKGROUND, ORPHAN)

UNREAD_OPTION = "ignoreStoreReadErrorWithClusterBreakingPotential"
"""The option that removes an object whose stored value is damaged. Source: KEP-3926."""

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_POLICY_FINALIZERS = {FOREGROUND: FOREGROUND_FINALIZER, ORPHAN: ORPHAN_FINALIZER}


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Validated `metav1.DeleteOptions`."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    ignores_read_errors: bool = False

    @classmethod
    def of(cls, body: Obj) -> DeleteOptions:
        """Parse the options in a request body. Raises InvalidError for conflicting ones."""
        policy = body.get("propagationPolicy")
        orphans = body.get("orphanDependents")
        errors: list[FieldError] = []
        if policy is not None and orphans is not None:
            errors.append(
                FieldError.invalid(
                    "propagationPolicy",
                    policy,
                    "orphanDependents and deletionPropagation cannot be both set",
                )
            )
        if policy is not None and policy not in POLICIES:
            supported = ("Foreground", "Background", "Orphan", "nil")
            errors.append(FieldError.not_supported("propagationPolicy", policy, supported))
        if errors:
            raise InvalidError.of("DeleteOptions", "", errors, group="meta.k8s.io")
        if orphans is not None:
            policy = ORPHAN if orphans else BACKGROUND
        preconditions = body.get("preconditions") or {}
        return cls(
            grace_period_seconds=body.get("gracePeriodSeconds"),
            propagation_policy=policy,
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            ignores_read_errors=bool(body.get(UNREAD_OPTION)),
        )

    def to_object(self) -> Obj:
        """Return the options as a body has them."""
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        options = {
            "gracePeriodSeconds": self.grace_period_seconds,
            "propagationPolicy": self.propagation_policy,
            "preconditions": {
                name: value for name, value in preconditions.items() if value is not None
            }
            or None,
        }
        return {name: value for name, value in options.items() if value is not None}


class Action(Enum):
    """Next step of a deletion."""

    KEEP = "keep"
    UPDATE = "update"
    UPDATE_THEN_REMOVE = "update then remove"
    REMOVE = "remove"


class Decision(msgspec.Struct, frozen=True):
    """The action, and for an update the object to write."""

    action: Action
    obj: Obj


def check_preconditions(kind: Kind, obj: Obj, options: DeleteOptions) -> None:
    """Raise ConflictError when UID or resourceVersion differ from the preconditions."""
    meta = obj["metadata"]
    name = meta["name"]
    if options.uid is not None and options.uid != meta.get("uid"):
        raise _conflict(
            kind,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({meta.get('uid')}). The object might have been deleted and then recreated",
        )
    wanted = options.resource_version
    if wanted is not None and wanted != meta.get("resourceVersion"):
        raise _conflict(
            kind,
            name,
            f"the ResourceVersion in the precondition ({wanted}) does not match the "
            f"ResourceVersion in record ({meta.get('resourceVersion')}). The object might have "
            "been modified",
        )


def _conflict(kind: Kind, name: str, why: str) -> StatusError:
    details: dict[str, Any] = {"name": name, "group": kind.group, "kind": kind.plural}
    return ConflictError(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": Precondition failed: {why}',
        {key: value for key, value in details.items() if value},
    )


def decide(kind: Kind, obj: Obj, options: DeleteOptions, now: datetime) -> Decision:
    """Return the next step of a delete of `obj`. Changes `obj` in place for an update."""
    meta = obj["metadata"]
    is_new = "deletionTimestamp" not in meta
    grace_s = _grace_seconds(kind, obj, options)
    has_new_finalizers = _set_policy_finalizers(kind, meta, options)
    is_held = bool(meta.get("finalizers")) or kind.strategy.is_held(obj)
    if is_new:
        _mark(kind, obj, 0 if is_held and grace_s is None else grace_s, now)
        if is_held or grace_s:
            return Decision(Action.UPDATE, obj)
        # Watchers of kinds with graceful deletion see deletionTimestamp before the DELETED event.
        return Decision(Action.REMOVE if grace_s is None else Action.UPDATE_THEN_REMOVE, obj)
    is_shorter = _shorten(meta, grace_s, options)
    if is_held:
        is_changed = has_new_finalizers or is_shorter
        return Decision(Action.UPDATE if is_changed else Action.KEEP, obj)
    if not meta.get("deletionGracePeriodSeconds"):
        return Decision(Action.REMOVE, obj)
    return Decision(Action.UPDATE if is_shorter else Action.KEEP, obj)


def is_over(kind: Kind, obj: Obj) -> bool:
    """Return whether an object that is being deleted can be removed: nothing holds it."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not kind.strategy.is_held(obj)
    )


def _grace_seconds(kind: Kind, obj: Obj, options: DeleteOptions) -> int | None:
    """Return the grace period in seconds; None for kinds without graceful deletion."""
    if kind.strategy.grace_seconds is None:
        return None
    return kind.strategy.grace_seconds(obj, options.grace_period_seconds)


def _mark(kind: Kind, obj: Obj, grace_s: int | None, now: datetime) -> None:
    meta = obj["metadata"]
    meta["deletionTimestamp"] = format_time(now + timedelta(seconds=grace_s or 0))
    if grace_s is not None and not kind.strategy.is_held(obj):
        meta["deletionGracePeriodSeconds"] = grace_s
    if kind.strategy.spec_of is not None and "generation" in meta:
        meta["generation"] += 1
    kind.strategy.mark_deleted(obj)


def _shorten(meta: Obj, grace_s: int | None, options: DeleteOptions) -> bool:
    """Shorten the grace period; a later delete cannot extend it. Returns whether it changed."""
    current = meta.get("deletionGracePeriodSeconds") or 0
    if grace_s is None or options.grace_period_seconds is None or grace_s >= current:
        return False
    ends = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=current - grace_s)
    meta["deletionTimestamp"] = format_time(ends)
    meta["deletionGracePeriodSeconds"] = grace_s
    return True


def _set_policy_finalizers(kind: Kind, meta: Obj, options: DeleteOptions) -> bool:
    """Replace the finalizers of other policies by this policy's. Returns whether any changed."""
    before = meta.get("finalizers", [])
    policy = options.propagation_policy
    if policy is None:
        present = [finalizer for finalizer in before if finalizer in _POLICY_FINALIZERS.values()]
        if present or kind.strategy.default_propagation == BACKGROUND:
            return False
        policy = kind.strategy.default_propagation
    after = [finalizer for finalizer in before if finalizer not in _POLICY_FINALIZERS.values()]
    if policy in _POLICY_FINALIZERS:
        after.append(_POLICY_FINALIZERS[policy])
    if after == before:
        return False
    if after:
        meta["finalizers"] = after
    else:
        meta.pop("finalizers", None)
    return True
