"""The `/resize` subresource of a pod: what it may change, and the errors of such a change.

Requests and limits of CPU and memory may change, of containers and of the whole pod; everything
else is put back or refused. Source: KEP-1287, KEP-5419; core validation `ValidatePodResize` of
Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.api.pods import MIRROR_ANNOTATION
from moorage.api.qos import qos_class
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.preparation import keep_all_but_status, keep_status, put
from moorage.apiserver.registry.validation.pod_spec import pod_spec_errors

_FIELDS = ("containers", "initContainers")
_SIDES = ("requests", "limits")
_RESIZABLE = ("cpu", "memory")
_ONLY_CPU_AND_MEMORY = "only cpu and memory resources are mutable"


def prepare_resize(new: Obj, old: Obj) -> None:
    """Keep everything but resources and resize policies.

    Containers that were added, removed, renamed or reordered stay, for validation to refuse.
    """
    before, after = old["spec"], new["spec"]
    if any(len(before.get(field, ())) != len(after.get(field, ())) for field in _FIELDS):
        return
    spec = {**before}
    put(spec, "resources", after.get("resources"))
    for field in _FIELDS:
        if field in after:
            spec[field] = _resized(after[field], before[field])
    keep_all_but_status(new, old)
    new["spec"] = spec
    keep_status(new, old)


def _resized(after: list[Obj], before: list[Obj]) -> list[Obj]:
    """Return the old containers with the new ones' resources and resize policies."""
    if any(new.get("name") != old.get("name") for new, old in zip(after, before, strict=True)):
        return after
    return [_with_fields(old, new) for new, old in zip(after, before, strict=True)]


def _with_fields(old: Obj, new: Obj) -> Obj:
    container = {**old}
    put(container, "resources", new.get("resources"))
    put(container, "resizePolicy", new.get("resizePolicy"))
    return container


def validate_resize(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a resize, except those of the metadata."""
    errors = pod_spec_errors(new["spec"], "spec")
    if MIRROR_ANNOTATION in old["metadata"].get("annotations", {}):
        return [FieldError.forbidden("", "static pods cannot be resized")]
    if old["spec"].get("os", {}).get("name") == "windows":
        return [FieldError.forbidden("", "windows pods cannot be resized")]
    errors += _pod_errors(new, old)
    errors += _pod_level_errors(new["spec"], old["spec"])
    if old.get("status", {}).get("nodeAllocatableResourceClaimStatuses"):
        why = "pods with node allocatable resource claims cannot be resized"
        errors.append(FieldError.forbidden("spec", why))
    order = _order_errors(new["spec"], old["spec"])
    if order:
        return errors + order
    for field in ("initContainers", "containers"):
        for index, container in enumerate(old["spec"].get(field, ())):
            path = f"spec.{field}[{index}].resources"
            errors += _removal_errors(new["spec"][field][index], container, path, "resource")
    errors += _main_errors(new["spec"], old["spec"])
    errors += _init_errors(new["spec"], old["spec"])
    if not errors and _others(new["spec"]) != _others(old["spec"]):
        errors.append(FieldError.forbidden("spec", _ONLY_CPU_AND_MEMORY))
    return errors


def _pod_errors(new: Obj, old: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    class_ = old.get("status", {}).get("qosClass") or qos_class(old["spec"])
    if qos_class(new["spec"]) != class_:
        why = "Pod QOS Class may not change as a result of resizing"
        errors.append(FieldError.invalid("spec", class_, why))
    if not _has_resizing_node(old):
        why = "Pod running on node without support for resize"
        errors.append(FieldError.forbidden("spec", why))
    return errors


def _has_resizing_node(pod: Obj) -> bool:
    """Return whether the pod's agent reports resources, as one does that can resize."""
    for status in pod.get("status", {}).get("containerStatuses", ()):
        if status.get("state", {}).get("running") is not None:
            return "resources" in status
    return True


def _pod_level_errors(new: Obj, old: Obj) -> list[FieldError]:
    before, after = old.get("resources"), new.get("resources")
    if not _is_set(before) and not _is_set(after):
        return []
    if before is not None and after is None:
        why = "pod-level resources cannot be removed"
        return [FieldError.forbidden("spec.resources", why)]
    errors: list[FieldError] = []
    if before is not None:
        errors += _removal_errors(new, old, "spec.resources", "pod-level resource")
    claims = ((before or {}).get("claims"), (after or {}).get("claims"))
    if _fixed(after) != _fixed(before) or claims[0] != claims[1]:
        why = "only cpu and memory resources are mutable at pod-level"
        errors.append(FieldError.forbidden("spec", why))
    return errors


def _is_set(resources: Obj | None) -> bool:
    return resources is not None and any(resources.get(side) for side in _SIDES)


def _removal_errors(new: Obj, old: Obj, path: str, what: str) -> list[FieldError]:
    """Return an error for each side of which a resource was removed; it may only change."""
    before, after = old.get("resources", {}), new.get("resources", {})
    return [
        FieldError.forbidden(f"{path}.{side}", f"{what} {side} cannot be removed")
        for side in _SIDES
        if before.get(side, {}).keys() - after.get(side, {}).keys()
    ]


def _order_errors(new: Obj, old: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in _FIELDS:
        before, after = old.get(field, ()), new.get(field, ())
        if len(before) != len(after):
            why = f"{field} may not be added or removed on resize"
            errors.append(FieldError.forbidden(f"spec.{field}", why))
            continue
        why = f"{field} may not be renamed or reordered on resize"
        errors += [
            FieldError.forbidden(f"spec.{field}[{index}].name", why)
            for index, (one, other) in enumerate(zip(before, after, strict=True))
            if one["name"] != other.get("name")
        ]
    return errors


def _main_errors(new: Obj, old: Obj) -> list[FieldError]:
    pairs = zip(new["containers"], old["containers"], strict=True)
    return [
        FieldError.forbidden("spec", _ONLY_CPU_AND_MEMORY)
        for one, other in pairs
        if _is_changed(one, other)
    ]


def _init_errors(new: Obj, old: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, before in enumerate(old.get("initContainers", ())):
        after = new["initContainers"][index]
        path = f"spec.initContainers[{index}]"
        if _is_changed(after, before):
            why = "only cpu and memory resources for init or sidecar containers are mutable"
            errors.append(FieldError.forbidden(path, why))
        if after == before or after.get("restartPolicy") == "Always":
            continue
        why = (
            "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        )
        errors += [
            FieldError.forbidden(path, why)
            for policy in after.get("resizePolicy", ())
            if policy.get("restartPolicy") == "RestartContainer"
        ]
    return errors


def _is_changed(new: Obj, old: Obj) -> bool:
    """Return whether more than CPU and memory differs.

    A container with resource claims counts as changed, so it cannot be resized at all.
    """
    before, after = old.get("resources", {}), new.get("resources", {})
    if _fixed(after) != _fixed(before) or before.get("claims"):
        return True
    return _without_resources(new) != _without_resources(old)


def _fixed(resources: Obj | None) -> dict[str, dict[str, Any]]:
    """Return the resources that cannot be resized, by side."""
    return {
        side: {
            name: amount
            for name, amount in (resources or {}).get(side, {}).items()
            if name not in _RESIZABLE
        }
        for side in _SIDES
    }


def _without_resources(container: Obj) -> Obj:
    return {field: value for field, value in container.items() if field != "resources"}


def _others(spec: Obj) -> Obj:
    return {field: value for field, value in spec.items() if field not in (*_FIELDS, "resources")}
