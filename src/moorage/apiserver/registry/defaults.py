"""Defaults that several kinds share: of pod templates, Job templates and volume claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.api import quantity
from moorage.api.quantity import Quantity
from moorage.apiserver.registry.kind import Obj

_FINER_THAN_MILLI = "nu"
_FILE_MODE = 0o644
_TOKEN_SECONDS = 3600


def default_volume_source(holder: Obj) -> None:
    """Set the API defaults of the sources that a volume or its specification has."""
    for source, fill in SOURCE_DEFAULTS.items():
        if source in holder:
            fill(holder[source])


def _with(**values: Any) -> Callable[[Obj], None]:
    def fill(source: Obj) -> None:
        for key, value in values.items():
            source.setdefault(key, value)

    return fill


SOURCE_DEFAULTS: dict[str, Callable[[Obj], None]] = {
    "hostPath": _with(type=""),
    "iscsi": _with(iscsiInterface="default"),
    "rbd": _with(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "azureDisk": _with(cachingMode="ReadWrite", kind="Shared", fsType="ext4", readOnly=False),
    "scaleIO": _with(storageMode="ThinProvisioned", fsType="xfs"),
}
"""Volume source → what it gets where nothing is said."""


def default_pod_template(template: Obj) -> None:
    """Default a workload's pod template."""
    spec = template.setdefault("spec", {})
    default_pod_spec(spec)
    if spec.get("hostNetwork"):
        default_host_ports(spec)


def default_pod_spec(spec: Obj) -> None:
    """Default the fields that pods and pod templates share."""
    spec.setdefault("restartPolicy", "Always")
    if spec.setdefault("terminationGracePeriodSeconds", 30) < 0:
        # "As soon as possible" without skipping the signal: what negative values always meant.
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    # The old name and the new one are always written together.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in all_containers(spec):
        _default_container(container)
        if "resources" in container:
            round_resources(container["resources"])
    if "overhead" in spec:
        round_amounts(spec["overhead"])
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def default_host_ports(spec: Obj) -> None:
    """Default host ports on the host's network to the container's own ports."""
    for container in all_containers(spec):
        for port in container.get("ports", ()):
            port.setdefault("hostPort", port.get("containerPort", 0))


def all_containers(spec: Obj) -> list[Obj]:
    return [
        *spec.get("initContainers", ()),
        *spec.get("containers", ()),
        *spec.get("ephemeralContainers", ()),
    ]


def _default_container(container: Obj) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        reference = variable.get("valueFrom", {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _default_probe(container[probe])
    for hook in container.get("lifecycle", {}).values():
        if isinstance(hook, dict):
            _default_http_get(hook)


def default_pull_policy(image: str) -> str:
    """`Always` for an image that may change under its name: no tag, or `latest`."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Obj) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _default_http_get(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _default_http_get(handler: Obj) -> None:
    if "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")


def round_resources(resources: Obj) -> None:
    for side in ("limits", "requests"):
        if side in resources:
            round_amounts(resources[side])


def round_amounts(amounts: dict[str, str]) -> None:
    """Nothing finer than a thousandth is kept."""
    for name, text in amounts.items():
        if text[-1] in _FINER_THAN_MILLI:
            amounts[name] = str(Quantity(quantity.parse(text).milli * 10**6))


def _default_volume(volume: Obj) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for source, fill in _VOLUME_DEFAULTS.items():
        if source in volume:
            fill(volume[source])


def _mode(source: Obj) -> None:
    source.setdefault("defaultMode", _FILE_MODE)


def _downward(source: Obj) -> None:
    _mode(source)
    _downward_items(source)


def _downward_items(source: Obj) -> None:
    for item in source.get("items", ()):
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _projected(source: Obj) -> None:
    _mode(source)
    for projection in source.get("sources", ()):
        if "serviceAccountToken" in projection:
            projection["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_SECONDS)
        if "downwardAPI" in projection:
            _downward_items(projection["downwardAPI"])


def _image(source: Obj) -> None:
    if "pullPolicy" not in source:
        source["pullPolicy"] = default_pull_policy(source.get("reference", ""))


def _claim_template(source: Obj) -> None:
    template = source.get("volumeClaimTemplate")
    if template is not None:
        spec = template.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        if "resources" in spec:
            round_resources(spec["resources"])


_VOLUME_DEFAULTS: dict[str, Callable[[Obj], None]] = {
    "secret": _mode,
    "configMap": _mode,
    "downwardAPI": _downward,
    "projected": _projected,
    "image": _image,
    "ephemeral": _claim_template,
    **SOURCE_DEFAULTS,
}
"""Volume source → what it gets where nothing is said."""


def default_job_template_spec(spec: Obj) -> None:
    """Set the API defaults of a `JobSpec` inside a template: those of its pods and its rules."""
    default_pod_template(spec.setdefault("template", {}))
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            if not pattern.get("status"):
                pattern["status"] = "True"


def default_volume_claim(claim: Obj) -> None:
    """Set the API defaults of a PersistentVolumeClaim."""
    spec, status = claim.setdefault("spec", {}), claim.setdefault("status", {})
    spec.setdefault("volumeMode", "Filesystem")
    status.setdefault("phase", "Pending")
    if "resources" in spec:
        round_resources(spec["resources"])
    for field in ("capacity", "allocatedResources"):
        if field in status:
            round_amounts(status[field])
