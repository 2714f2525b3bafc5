"""PodSecurity plugin: enforces a namespace's Pod Security Standard, or warns about violations.

Pods are refused; templates of workloads and pods that run already are only warned about. Source:
apiserver plugin PodSecurity, `pod-security-admission/admission` of Kubernetes 1.37.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from moorage.admission.chain import CREATE, UPDATE, Scope
from moorage.admission.pod_security.policy import Policy, Standard, policy_of
from moorage.admission.pod_security.standards import violations
from moorage.admission.refusal import refused
from moorage.api.clock import Clock
from moorage.api.errors import InvalidError
from moorage.registry.kind import Obj
from moorage.registry.request import Attributes
from moorage.registry.stored import Stored

_NAMESPACES, _PODS = "namespaces", "pods"
_TEMPLATES: dict[str, tuple[str, ...]] = {
    "replicationcontrollers": ("spec", "template"),
    "podtemplates": ("template",),
    "replicasets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
"""Resource → where its pod template is."""

_ENFORCED = "pod-security.kubernetes.io/enforce-policy"
_VIOLATED = "pod-security.kubernetes.io/audit-violations"
"""Keys of audit annotations."""

_MOST_PODS = 3000
_LONGEST_S = 1.0
_PODS_A_TURN = 50


class PodSecurity:
    """Checks pods, workloads and namespaces.

    `labels` returns those of a namespace, `pods` its pods.
    """

    name = "PodSecurity"
    scope = Scope.of(
        [_NAMESPACES, _PODS, *_TEMPLATES], [CREATE, UPDATE], ["", "ephemeralcontainers", "resize"]
    )
    mutate = None

    def __init__(
        self,
        labels: Callable[[str], Mapping[str, str]],
        pods: Callable[[str], Sequence[Stored]],
        clock: Clock,
    ) -> None:
        self._labels = labels
        self._pods = pods
        self._clock = clock

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Check a write. Returns the checks of a namespace's pods, where it needs them.

        Raises ForbiddenError for a pod, InvalidError for a namespace's labels.
        """
        resource = attributes.kind.resource
        if resource == _NAMESPACES:
            return self._check_namespace(attributes)
        policy = policy_of(self._labels(attributes.namespace))
        if policy.permits_all:
            if resource == _PODS:
                attributes.request.annotate(_ENFORCED, str(policy.enforce))
            return None
        if resource == _PODS:
            _check_pod(attributes, policy)
        elif not attributes.subresource:
            _check_template(attributes, policy)
        return None

    def _check_namespace(self, attributes: Attributes) -> Awaitable[None] | None:
        new, old = policy_of(_labels(attributes.obj)), policy_of(_labels(attributes.old))
        if new.errors and new.errors != old.errors:
            raise InvalidError.of("Namespace", attributes.name, new.errors)
        if attributes.old is None or not _is_stricter(new.enforce, old.enforce):
            return None
        return self._warn_about_pods(attributes, new.enforce)

    async def _warn_about_pods(self, attributes: Attributes, standard: Standard) -> None:
        """Warn about the pods of a namespace that violate a standard, as many as time permits."""
        items = self._pods(attributes.name)
        deadline = self._clock.monotonic() + _LONGEST_S
        found: dict[str, list[str]] = {}
        checked = 0
        for pod in await self._by_relevance(items, deadline):
            reasons = [one.reason for one in violations(standard, pod["metadata"], pod["spec"])]
            if reasons:
                found.setdefault(", ".join(reasons), []).append(pod["metadata"]["name"])
            checked += 1
            if checked % _PODS_A_TURN == 0 and await self._is_late(deadline):
                break
        request = attributes.request
        if checked < len(items):
            request.warn(
                f"new PodSecurity enforce level only checked against the first {checked} of "
                f"{len(items)} existing pods"
            )
        if found:
            request.warn(
                f'existing pods in namespace "{attributes.name}" violate the new PodSecurity '
                f'enforce level "{standard}"'
            )
        for text in sorted(_about(names, reasons) for reasons, names in found.items()):
            request.warn(text)

    async def _by_relevance(self, items: Sequence[Stored], deadline: float) -> list[Obj]:
        """Return pods with one of each controller before the controllers' other pods."""
        first: list[Obj] = []
        others: list[Obj] = []
        seen: set[str] = set()
        for count, item in enumerate(items, start=1):
            pod = item.obj
            owners = pod["metadata"].get("ownerReferences", ())
            uid = next((owner["uid"] for owner in owners if owner.get("controller")), None)
            (others if uid in seen else first).append(pod)
            seen |= {uid} if uid is not None else set()
            if len(first) == _MOST_PODS:
                break
            if count % _PODS_A_TURN == 0 and await self._is_late(deadline):
                break
        return [*first, *others][:_MOST_PODS]

    async def _is_late(self, deadline: float) -> bool:
        """Let other requests go on. Returns whether the time is over."""
        await asyncio.sleep(0)
        return self._clock.monotonic() > deadline


def _check_pod(attributes: Attributes, policy: Policy) -> None:
    pod = attributes.obj
    assert pod is not None
    if attributes.old is not None and not _is_significant(pod, attributes.old):
        return
    metadata, spec = pod["metadata"], pod["spec"]
    attributes.request.annotate(_ENFORCED, str(policy.enforce))
    _audit(attributes, policy.audit, metadata, spec)
    if enforced := _text(policy.enforce, metadata, spec):
        raise refused(attributes, f"violates {enforced}")
    _warn(attributes, policy.warn, metadata, spec)


def _check_template(attributes: Attributes, policy: Policy) -> None:
    template = attributes.obj
    for field in _TEMPLATES[attributes.kind.resource]:
        template = (template or {}).get(field)
    if template and "spec" in template:
        metadata = template.get("metadata") or {}
        _audit(attributes, policy.audit, metadata, template["spec"])
        _warn(attributes, policy.warn, metadata, template["spec"])


def _audit(attributes: Attributes, standard: Standard, metadata: Obj, spec: Obj) -> None:
    if violated := _text(standard, metadata, spec):
        attributes.request.annotate(_VIOLATED, f"would violate {violated}")


def _warn(attributes: Attributes, standard: Standard, metadata: Obj, spec: Obj) -> None:
    if warned := _text(standard, metadata, spec):
        attributes.request.warn(f"would violate {warned}")


def _text(standard: Standard, metadata: Obj, spec: Obj) -> str:
    """Return what of a standard a pod violates, empty for nothing."""
    found = violations(standard, metadata, spec)
    return f'PodSecurity "{standard}": {", ".join(map(str, found))}' if found else ""


def _is_stricter(new: Standard, old: Standard) -> bool:
    """Return whether pods that were permitted may violate the new standard."""
    if new.permits_all or new == old:
        return False
    return new.version != old.version or new.strictness > old.strictness


def _is_significant(pod: Obj, old: Obj) -> bool:
    """Return whether an update changes images, or adds or removes containers."""
    for field in ("containers", "initContainers"):
        new = [container.get("image") for container in pod["spec"].get(field, ())]
        if new != [container.get("image") for container in old["spec"].get(field, ())]:
            return True
    before = {
        container["name"]: container.get("image")
        for container in old["spec"].get("ephemeralContainers", ())
    }
    return any(
        before.get(container["name"], "") != container.get("image")
        for container in pod["spec"].get("ephemeralContainers", ())
    )


def _about(names: Sequence[str], reasons: str) -> str:
    more = len(names) - 1
    others = "" if not more else f" (and {more} other pod{'' if more == 1 else 's'})"
    return f"{min(names)}{others}: {reasons}"


def _labels(namespace: Obj | None) -> Mapping[str, str]:
    labels: Mapping[str, str] = (namespace or {}).get("metadata", {}).get("labels") or {}
    return labels
