"""Validation of new pods, and of changes to existing ones.

Source: core validation `ValidatePodCreate`, `ValidatePodUpdate`, Kubernetes 1.36.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.pods import MIRROR_ANNOTATION
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.addresses import ip_errors
from moorage.apiserver.registry.validation.pod_spec import pod_spec_errors
from moorage.apiserver.registry.validation.repeated import repeated

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = "nodeSelectorTerms"
_SELECTOR = "spec.nodeSelector"
_AFFINITY = "spec.affinity.nodeAffinity"
_PARTS = ("matchExpressions", "matchFields")
_UPDATE_MESSAGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_APPARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
Json = Mapping[str, Any]


def gated_errors(new: Json, old: Json) -> list[FieldError]:
    """Return the errors of node selector and node affinity of a pod that had gates."""
    errors = []
    before, after = old.get("nodeSelector", {}), new.get("nodeSelector", {})
    if not before.items() <= after.items():
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(FieldError.invalid(_SELECTOR, after, text))
    return errors + _affinity_errors(_terms(new), _terms(old))


def with_placing_of(allowed: Obj, new: Json) -> None:
    """Give a specification the node selector and node affinity of another, in place."""
    if "nodeSelector" in new:
        allowed["nodeSelector"] = new["nodeSelector"]
    else:
        allowed.pop("nodeSelector", None)
    theirs = new.get("affinity")
    affinity = {**allowed.get("affinity", {})}
    affinity.pop("nodeAffinity", None)
    if theirs is not None and "nodeAffinity" in theirs:
        affinity["nodeAffinity"] = theirs["nodeAffinity"]
    if affinity or theirs is not None:
        allowed["affinity"] = affinity
    else:
        allowed.pop("affinity", None)


def _terms(spec: Json) -> list[Json]:
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
    terms: list[Json] = required.get(_TERMS, [])
    return terms


def _affinity_errors(new: list[Json], old: list[Json]) -> list[FieldError]:
    path = f"{_AFFINITY}.{_REQUIRED}.{_TERMS}"
    if old and len(new) != len(old):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [FieldError.invalid(path, new, text)]
    return [
        FieldError.invalid(
            f"{path}[{index}]",
            after,
            "only additions are allowed (no mutations or deletions)",
        )
        for index, (before, after) in enumerate(zip(old, new, strict=False))
        if not _has_only_additions(after, before)
    ]


def _has_only_additions(new: Json, old: Json) -> bool:
    """Return whether a term keeps what it had, in order. An empty one, which matches no node, stays
    empty."""
    if not any(old.get(part) for part in _PARTS):
        return not any(new.get(part) for part in _PARTS)
    return all(new.get(part, [])[: len(old.get(part, []))] == old.get(part, []) for part in _PARTS)


def validate_pod(pod: Obj) -> list[FieldError]:
    """Return the errors of a new pod, except those of its metadata that all kinds have."""
    errors = _mirror_errors(pod)
    errors += pod_spec_errors(pod["spec"], "spec", pod["metadata"].get("name", ""))
    if pod["spec"].get("ephemeralContainers"):
        errors.append(FieldError.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return errors


def validate_pod_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: images, deadlines, gates, tolerations and annotations."""
    errors = _annotation_change_errors(new, old)
    errors += pod_spec_errors(new["spec"], "spec", new["metadata"].get("name", ""))
    errors += _deadline_errors(new["spec"], old["spec"])
    errors += _added_toleration_errors(new["spec"], old["spec"])
    if old["spec"].get("schedulingGates"):
        errors += gated_errors(new["spec"], old["spec"])
    allowed = _with_allowed_changes(new["spec"], old["spec"])
    if allowed != new["spec"]:
        changed = sorted(
            key
            for key in allowed.keys() | new["spec"].keys()
            if allowed.get(key) != new["spec"].get(key)
        )
        errors.append(
            FieldError.forbidden(
                "spec", f"{_UPDATE_MESSAGE}\n{_difference(allowed, new['spec'], changed)}"
            )
        )
    return errors


def _annotation_change_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Refuse that a pod begins or ceases to be a mirror: its node never evicts one.

    Source: core validation `ValidatePodSpecificAnnotationUpdates`.
    """
    before, after = (pod["metadata"].get("annotations", {}) for pod in (old, new))
    errors: list[FieldError] = []
    for key in sorted(before.keys() | after.keys()):
        what = _fixed(key)
        if what and before.get(key) != after.get(key):
            act = "remove or update" if key in before else "add"
            path = f"metadata.annotations[{key}]"
            errors.append(FieldError.forbidden(path, f"may not {act} {what}"))
    return errors + _mirror_errors(new)


def _fixed(annotation: str) -> str:
    """Return the name of an annotation that never changes, "" for any other."""
    if annotation == MIRROR_ANNOTATION:
        return "mirror pod annotation"
    return "AppArmor annotations" if annotation.startswith(_APPARMOR_PREFIX) else ""


def _mirror_errors(pod: Obj) -> list[FieldError]:
    value = pod["metadata"].get("annotations", {}).get(MIRROR_ANNOTATION)
    if value is None or pod["spec"].get("nodeName"):
        return []
    why = "must set spec.nodeName if mirror pod annotation is set"
    return [FieldError.invalid(f"metadata.annotations[{MIRROR_ANNOTATION}]", value, why)]


def _with_allowed_changes(new: Obj, old: Obj) -> Obj:
    """The old spec with those of the new one's changes that are allowed."""
    allowed = copy.deepcopy(old)
    for field in ("containers", "initContainers"):
        ours, theirs = allowed.get(field, []), new.get(field, [])
        if len(ours) == len(theirs):
            for mine, other in zip(ours, theirs, strict=True):
                mine["image"] = other.get("image", "")
    for field in ("activeDeadlineSeconds", "tolerations"):
        _take(allowed, new, field)
    if (
        old.get("terminationGracePeriodSeconds", 0) < 0
        and new.get("terminationGracePeriodSeconds") == 1
    ):
        allowed["terminationGracePeriodSeconds"] = 1
    if old.get("schedulingGates"):
        # A gated pod may lose gates, and become choosier about its node.
        if _is_subset(new.get("schedulingGates", []), old["schedulingGates"]):
            _take(allowed, new, "schedulingGates")
        with_placing_of(allowed, new)
    return allowed


def _take(target: Obj, source: Obj, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _is_subset(part: Iterable[Any], whole: Iterable[Any]) -> bool:
    """Return whether each value is among others; both lists may be as long as a body."""
    return _texts(part) <= _texts(whole)


def _texts(values: Iterable[Any]) -> set[bytes]:
    return {msgspec.json.encode(value, order="sorted") for value in values}


def _deadline_errors(new: Obj, old: Obj) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is None:
        return []
    if after is None:
        return [FieldError.invalid(path, None, "must not update from a positive integer to nil "
                                   "value")]  # fmt: skip
    if after > before:
        return [FieldError.invalid(path, after, "must be less than or equal to previous value")]
    return []


def _added_toleration_errors(new: Obj, old: Obj) -> list[FieldError]:
    before, after = (map(_without_seconds, spec.get("tolerations", ())) for spec in (old, new))
    if _is_subset(before, after):
        return []
    return [
        FieldError.forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
    ]


def _without_seconds(toleration: Obj) -> Obj:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _difference(allowed: Obj, new: Obj, changed: list[str]) -> str:
    """Return which fields differ and how, as JSON; upstream has lines around them, of its types."""
    lines = []
    for key in changed:
        go_name = key[:1].upper() + key[1:]
        for sign, spec in (("-", allowed), ("+", new)):
            lines.append(f'{sign} "{go_name}": {msgspec.json.encode(spec.get(key)).decode()},')
    return "\n".join(lines) + "\n"


def validate_pod_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status: a nomination stays, statuses name containers once."""
    status = new.get("status", {})
    errors = _annotation_change_errors(new, old)
    nominated = status.get("nominatedNodeName", "")
    if nominated:
        errors += [
            FieldError.invalid("status.nominatedNodeName", nominated, detail)
            for detail in names.dns_subdomain_errors(nominated)
        ]
    addresses = [pod_ip.get("ip", "") for pod_ip in status.get("podIPs", ())]
    repeats = repeated(addresses)
    for index, address in enumerate(addresses):
        errors += ip_errors(address, f"status.podIPs[{index}]")
        if index in repeats:
            errors.append(FieldError.duplicate(f"status.podIPs[{index}]", address))
    return errors


def validate_ephemeral_containers_update(new: Obj, old: Obj) -> list[FieldError]:
    """Ephemeral containers are added, never changed or removed."""
    errors = pod_spec_errors(new["spec"], "spec", new["metadata"].get("name", ""))
    after = {
        ephemeral.get("name"): ephemeral for ephemeral in new["spec"].get("ephemeralContainers", ())
    }
    for index, container in enumerate(old["spec"].get("ephemeralContainers", ())):
        present = after.get(container["name"])
        path = "spec.ephemeralContainers"
        if present is None:
            errors.append(
                FieldError.forbidden(
                    path, f'existing ephemeral containers "{container["name"]}" may not be removed'
                )
            )
        elif present != container:
            errors.append(
                FieldError.forbidden(
                    f"{path}[{index}]",
                    f'existing ephemeral containers "{container["name"]}" may not be changed',
                )
            )
    return errors
