"""LimitRanger plugin: default requests and limits of containers, and bounds on what is asked for.

Source: apiserver plugin LimitRanger of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from moorage.api.containers import Container
from moorage.api.pods import Pod
from moorage.api.quantity import Quantity, parse
from moorage.api.quotas import LimitRange, LimitRangeItem, PersistentVolumeClaim
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, RESIZE, UPDATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes
from moorage.runtimeclass.overhead import Amounts, pod_limits, pod_requests

ANNOTATION = "kubernetes.io/limit-ranger"
_PODS, _CLAIMS = "pods", "persistentvolumeclaims"
_EXACT_BELOW = (2**63 - 1) // 1000


class LimitRanger:
    """Applies the LimitRanges of a namespace to new and resized pods, and to claims.

    `ranges` returns them by namespace.
    """

    name = "LimitRanger"
    scope = Scope.of([_PODS, _CLAIMS], [CREATE, UPDATE], ["", RESIZE])

    def __init__(self, ranges: Callable[[str], Iterable[LimitRange]]) -> None:
        self._ranges = ranges
        self.mutate = self._set_defaults
        self.validate = self._check

    def _set_defaults(self, attributes: Attributes) -> None:
        if attributes.kind.resource != _PODS or not _sets_resources(attributes):
            return
        if _is_being_deleted(attributes):
            return
        pod = attributes.obj
        assert pod is not None
        for limit_range in self._ranges(attributes.namespace):
            _set_pod_defaults(pod, limit_range)

    def _check(self, attributes: Attributes) -> None:
        is_pod = attributes.kind.resource == _PODS
        if is_pod and not _sets_resources(attributes):
            return
        if _is_being_deleted(attributes):
            return
        for limit_range in self._ranges(attributes.namespace):
            complaints = list(
                _pod_complaints(msgspec.convert(attributes.obj, Pod), limit_range)
                if is_pod
                else _claim_complaints(
                    msgspec.convert(attributes.obj, PersistentVolumeClaim), limit_range
                )
            )
            if complaints:
                unique = list(dict.fromkeys(complaints))
                raise refused(
                    attributes, unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
                )


def _sets_resources(attributes: Attributes) -> bool:
    """Return whether a write of a pod may set the resources of its containers."""
    return attributes.operation == CREATE or attributes.subresource == RESIZE


def _is_being_deleted(attributes: Attributes) -> bool:
    return attributes.old is not None and "deletionTimestamp" in attributes.old["metadata"]


def _set_pod_defaults(pod: Obj, limit_range: LimitRange) -> None:
    """Set the defaults of a LimitRange, and name what was set in an annotation."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for item in limit_range.spec.limits:
        if item.type == "Container":
            requests |= item.default_request
            limits |= item.default
    if not requests and not limits:
        return
    spec = pod["spec"]
    notes = [
        note
        for field, what in (("containers", "container"), ("initContainers", "init container"))
        for container in spec.get(field, ())
        for note in _set_container_defaults(container, requests, limits, what)
    ]
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _set_container_defaults(
    container: Obj, requests: Mapping[str, str], limits: Mapping[str, str], what: str
) -> Iterator[str]:
    for field, side, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
        resources = container.get("resources", {})
        missing = sorted(defaults.keys() - resources.get(field, {}).keys())
        if missing:
            given = {**resources.get(field, {}), **{name: defaults[name] for name in missing}}
            container["resources"] = {**resources, field: given}
            yield f"{', '.join(missing)} {side} for {what} {container['name']}"


def _pod_complaints(pod: Pod, limit_range: LimitRange) -> Iterator[str]:
    for item in limit_range.spec.limits:
        if item.type == "Container":
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                yield from _complaints(item, *_stated(container))
        elif item.type == "Pod":
            # A class's overhead is not the user's choice, and does not count here.
            spec = msgspec.structs.replace(pod.spec, overhead={})
            yield from _complaints(item, pod_requests(spec), pod_limits(spec))


def _stated(container: Container) -> tuple[Amounts, Amounts]:
    resources = container.resources
    return _parsed(resources.requests), _parsed(resources.limits)


def _claim_complaints(claim: PersistentVolumeClaim, limit_range: LimitRange) -> Iterator[str]:
    requests = _parsed(claim.spec.resources.requests)
    for item in limit_range.spec.limits:
        if item.type != "PersistentVolumeClaim":
            continue
        for name, least in _sorted(item.min):
            yield from _below(item.type, name, least, requests, {})
        for name, most in _sorted(item.max):
            start = f"maximum {name} usage per {item.type} is {most}"
            if name not in requests:
                yield f"{start}.  No request is specified"
            elif most < requests[name]:
                yield f"{start}, but request is {requests[name]}"


def _complaints(item: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in _sorted(item.min):
        yield from _below(item.type, name, least, requests, limits)
    for name, most in _sorted(item.max):
        yield from _above(item.type, name, most, requests, limits)
    for name, ratio in _sorted(item.max_limit_request_ratio):
        yield from _beyond_ratio(item.type, name, ratio, requests, limits)


def _below(
    type_: str, name: str, least: Quantity, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    start = f"minimum {name} usage per {type_} is {least}"
    if name not in requests:
        yield f"{start}.  No request is specified"
    elif requests[name] < least:
        yield f"{start}, but request is {requests[name]}"
    elif name in limits and limits[name] < least:
        yield f"{start}, but limit is {limits[name]}"


def _above(
    type_: str, name: str, most: Quantity, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    start = f"maximum {name} usage per {type_} is {most}"
    if name not in limits:
        yield f"{start}.  No limit is specified"
    elif most < limits[name]:
        yield f"{start}, but limit is {limits[name]}"
    elif name in requests and most < requests[name]:
        yield f"{start}, but request is {requests[name]}"


def _beyond_ratio(
    type_: str, name: str, most: Quantity, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    start = f"{name} max limit to request ratio per {type_} is {most}"
    if not requests.get(name):
        yield f"{start}, but no request is specified or request is 0"
    elif not limits.get(name):
        yield f"{start}, but no limit is specified or limit is 0"
    else:
        amounts = (limits[name], requests[name])
        is_exact = all(amount.value <= _EXACT_BELOW for amount in (*amounts, most))
        limit, request = (amount.milli if is_exact else amount.value for amount in amounts)
        ratio = limit / request
        if most.nano / 10**9 < ratio:
            yield f"{start}, but provided ratio is {ratio:f}"


def _parsed(resources: Mapping[str, str]) -> Amounts:
    return {name: parse(text) for name, text in resources.items()}


def _sorted(resources: Mapping[str, str]) -> list[tuple[str, Quantity]]:
    return sorted(_parsed(resources).items())
