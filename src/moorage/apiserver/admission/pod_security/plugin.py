"""PodSecurity plugin: enforces a namespace's Pod Security Standard, or warns about violations.

Pods are refused; templates of workloads and pods that run already are only warned about. Source:
apiserver plugin PodSecurity, `pod-security-admission/admission` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from moorage.api.clock import Clock
from moorage.api.errors import InvalidError
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.admission.pod_security.policy import (
    MODES,
    PREFIX,
    Configuration,
    PodLimits,
    Policy,
    Standard,
    policy_of,
    violations,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes
from moorage.apiserver.registry.stored import Stored
from moorage.runtimeclass.workloads import TEMPLATES, template_of

_NAMESPACES, _PODS = "namespaces", "pods"
_ENFORCED = "pod-security.kubernetes.io/enforce-policy"
_VIOLATED = "pod-security.kubernetes.io/audit-violations"
_EXEMPT = "pod-security.kubernetes.io/exempt"
"""Keys of audit annotations."""

_BY_CLASS = "runtimeClass"


class PodSecurity:
    """Checks pods, workloads and namespaces.

    `labels` returns those of a namespace, `pods` its pods.
    """

    name = "PodSecurity"
    scope = Scope.of(
        [_NAMESPACES, _PODS, *TEMPLATES], [CREATE, UPDATE], ["", "ephemeralcontainers", "resize"]
    )
    mutate = None

    def __init__(
        self,
        labels: Callable[[str], Mapping[str, str]],
        pods: Callable[[str], Sequence[Stored]],
        clock: Clock,
        configuration: Configuration | None = None,
        limits: PodLimits | None = None,
    ) -> None:
        self._limits = limits or PodLimits()
        configuration = configuration or Configuration()
        self._defaults = configuration.defaults
        self._exemptions = configuration.exemptions
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
        if exempt := self._exemption(attributes):
            attributes.request.annotate(_EXEMPT, exempt)
            return None
        policy = policy_of(self._labels(attributes.namespace), self._defaults)
        if policy.permits_all:
            if resource == _PODS:
                attributes.request.annotate(_ENFORCED, str(policy.enforce))
            return None
        if resource == _PODS:
            self._check_pod(attributes, policy)
        elif not attributes.subresource:
            self._check_template(attributes, policy)
        return None

    def _exemption(self, attributes: Attributes) -> str:
        """Return why the pods of a request are not checked, empty if they are."""
        if attributes.namespace in self._exemptions.namespaces:
            return "namespace"
        return "user" if attributes.request.user.name in self._exemptions.usernames else ""

    def _is_exempt(self, spec: Obj) -> bool:
        """Return whether a pod is not checked because of its RuntimeClass."""
        return spec.get("runtimeClassName") in self._exemptions.runtime_classes

    def _check_namespace(self, attributes: Attributes) -> Awaitable[None] | None:
        labels = _labels(attributes.obj)
        new = policy_of(labels, self._defaults)
        old = policy_of(_labels(attributes.old), self._defaults)
        if new.errors and (attributes.old is None or new.errors != old.errors):
            raise InvalidError.of("Namespace", attributes.name, new.errors)
        is_update = attributes.old is not None
        if is_update and not _is_stricter(new.enforce, old.enforce):
            return None
        if attributes.name in self._exemptions.namespaces:
            if not new.permits_all and new != self._defaults:
                attributes.request.warn(
                    f'namespace "{attributes.name}" is exempt from Pod Security, and the policy '
                    f"({_labelled(new, labels)}) will be ignored"
                )
            return None
        return self._warn_about_pods(attributes, new.enforce) if is_update else None

    def _check_pod(self, attributes: Attributes, policy: Policy) -> None:
        pod = attributes.obj
        assert pod is not None
        if attributes.old is not None and not _is_significant(pod, attributes.old):
            return
        metadata, spec = pod["metadata"], pod["spec"]
        if self._is_exempt(spec):
            attributes.request.annotate(_EXEMPT, _BY_CLASS)
            return
        attributes.request.annotate(_ENFORCED, str(policy.enforce))
        _audit(attributes, policy.audit, metadata, spec)
        if enforced := _text(policy.enforce, metadata, spec):
            raise refused(attributes, f"violates {enforced}")
        _warn(attributes, policy.warn, metadata, spec)

    def _check_template(self, attributes: Attributes, policy: Policy) -> None:
        assert attributes.obj is not None
        template = template_of(attributes.kind.resource, attributes.obj)
        if not template or "spec" not in template:
            return
        if self._is_exempt(template["spec"]):
            attributes.request.annotate(_EXEMPT, _BY_CLASS)
            return
        metadata = template.get("metadata") or {}
        _audit(attributes, policy.audit, metadata, template["spec"])
        _warn(attributes, policy.warn, metadata, template["spec"])

    async def _warn_about_pods(self, attributes: Attributes, standard: Standard) -> None:
        """Warn about the pods of a namespace that violate a standard, as many as time permits."""
        items = self._pods(attributes.name)
        deadline = self._clock.monotonic() + self._limits.longest_s
        found: dict[str, list[str]] = {}
        checked = 0
        pods, total = await self._by_relevance(items, deadline)
        for pod in pods:
            reasons = [one.reason for one in violations(standard, pod["metadata"], pod["spec"])]
            if reasons:
                found.setdefault(", ".join(reasons), []).append(pod["metadata"]["name"])
            checked += 1
            if checked % self._limits.pods_a_turn == 0 and await self._is_late(deadline):
                break
        request = attributes.request
        if checked < total:
            request.warn(
                f"new PodSecurity enforce level only checked against the first {checked} of "
                f"{total} existing pods"
            )
        if found:
            request.warn(
                f'existing pods in namespace "{attributes.name}" violate the new PodSecurity '
                f'enforce level "{standard}"'
            )
        for text in sorted(_about(names, reasons) for reasons, names in found.items()):
            request.warn(text)

    async def _by_relevance(
        self, items: Sequence[Stored], deadline: float
    ) -> tuple[list[Obj], int]:
        """Return pods, one of each controller before the others', and how many there are.

        Exempt pods are neither returned nor counted.
        """
        total = len(items)
        first: list[Obj] = []
        others: list[Obj] = []
        seen: set[str] = set()
        for count, item in enumerate(items, start=1):
            pod = item.obj
            if self._is_exempt(pod["spec"]):
                total -= 1
                continue
            owners = pod["metadata"].get("ownerReferences", ())
            uid = next((owner["uid"] for owner in owners if owner.get("controller")), None)
            (others if uid in seen else first).append(pod)
            seen |= {uid} if uid is not None else set()
            if len(first) == self._limits.most_pods:
                break
            if count % self._limits.pods_a_turn == 0 and await self._is_late(deadline):
                break
        return [*first, *others][: self._limits.most_pods], total

    async def _is_late(self, deadline: float) -> bool:
        """Let other requests go on. Returns whether the time is over."""
        await asyncio.sleep(0)
        return self._clock.monotonic() > deadline


def _audit(attributes: Attributes, standard: Standard, metadata: Obj, spec: Obj) -> None:
    if violated := _text(standard, metadata, spec):
        attributes.request.annotate(_VIOLATED, f"would violate {violated}")


def _warn(attributes: Attributes, standard: Standard, metadata: Obj, spec: Obj) -> None:
    if warned := _text(standard, metadata, spec):
        attributes.request.warn(f"would violate {warned}")


def _text(standard: Standard, metadata: Obj, spec: Obj) -> str:
    """Return the violations of a standard by a pod; empty if it violates none."""
    found = violations(standard, metadata, spec)
    return f'PodSecurity "{standard}": {", ".join(map(str, found))}' if found else ""


def _labelled(policy: Policy, labels: Mapping[str, str]) -> str:
    """Return the modes that a namespace's labels set: `enforce=baseline:latest`."""
    modes = (
        (mode, getattr(policy, mode))
        for mode in MODES
        if f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels
    )
    return ", ".join(f"{mode}={standard}" for mode, standard in modes if not standard.permits_all)


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
