"""Warnings about pod specifications: sentences for the `Warning` header.

Source: `pkg/api/pod/warnings` behaviour of Kubernetes 1.36. They are computed after admission, so
fields that admission adds from a RuntimeClass are warned about too.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api import quantity
from moorage.api.node_labels import DEPRECATED
from moorage.registry.kind import Obj

_WHOLE_BYTES = ("memory", "ephemeral-storage")


def warn_workload(workload: Obj, old: Obj | None) -> list[str]:
    """Return the warnings of a workload's pod template when it is new or changed."""
    template = workload["spec"].get("template", {})
    if old is not None and old["spec"].get("template") == template:
        return []
    return spec_warnings(template.get("spec", {}), "spec.template.spec")


def spec_warnings(spec: Obj, path: str) -> list[str]:
    """Return the warnings about a pod specification, in upstream's order."""
    warnings: list[str] = []
    for key in spec.get("nodeSelector", ()):
        if key in DEPRECATED:
            warnings.append(f"{path}.nodeSelector[{key}]: {DEPRECATED[key]}")
    if "affinity" in spec:
        warnings += _affinity_warnings(spec["affinity"], f"{path}.affinity")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        key = constraint.get("topologyKey", "")
        if key in DEPRECATED:
            at = f"{path}.topologySpreadConstraints[{index}].topologyKey"
            warnings.append(f"{at}: {key} is {DEPRECATED[key]}")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field, ())):
            warnings += _container_warnings(container, f"{path}.{field}[{index}]")
    if "overhead" in spec:
        warnings += _fraction_warnings(spec["overhead"], f"{path}.overhead")
    warnings += _duplicate_warnings(spec, path)
    return warnings


def _affinity_warnings(affinity: Obj, path: str) -> Iterable[str]:
    node = affinity.get("nodeAffinity", {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = [
        (f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
         f".nodeSelectorTerms[{index}]", term)
        for index, term in enumerate(required.get("nodeSelectorTerms", ()))
    ] + [
        (f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
         ".preference", preferred.get("preference", {}))
        for index, preferred in enumerate(
            node.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        )
    ]  # fmt: skip
    for at, term in terms:
        for number, expression in enumerate(term.get("matchExpressions", ())):
            key = expression.get("key", "")
            if key in DEPRECATED:
                yield f"{at}.matchExpressions[{number}].key: {key} is {DEPRECATED[key]}"


def _container_warnings(container: Obj, path: str) -> Iterable[str]:
    resources = container.get("resources") or {}
    for side in ("limits", "requests"):
        if side in resources:
            yield from _fraction_warnings(resources[side], f"{path}.resources.{side}")
    seen: dict[str, int] = {}
    for index, variable in enumerate(container.get("env", ())):
        name = variable.get("name", "")
        if name in seen:
            yield (
                f'{path}.env[{index}]: hides previous definition of "{name}", '
                "which may be dropped when using apply"
            )
        seen[name] = index
    ports: dict[tuple[object, ...], int] = {}
    for index, port in enumerate(container.get("ports", ())):
        key = (port.get("containerPort"), port.get("protocol"), port.get("hostPort"),
               port.get("hostIP"))  # fmt: skip
        if key in ports:
            first = f"{path}.ports[{ports[key]}]"
            yield f"{path}.ports[{index}]: duplicate port definition with {first}"
        ports.setdefault(key, index)
        if port.get("hostIP") and not port.get("hostPort"):
            shown = (
                f"{{Name:{port.get('name', '')} HostPort:0 "
                f"ContainerPort:{port.get('containerPort', 0)} "
                f"Protocol:{port.get('protocol', '')} HostIP:{port['hostIP']}}}"
            )
            yield f"{path}.ports[{index}]: hostIP set without hostPort: {shown}"


def _fraction_warnings(resources: Obj, path: str) -> Iterable[str]:
    for name in _WHOLE_BYTES:
        if name in resources and not quantity.parse(resources[name]).is_whole:
            yield (
                f'{path}[{name}]: fractional byte value "{resources[name]}" is invalid, must be an '
                "integer"
            )


def _duplicate_warnings(spec: Obj, path: str) -> Iterable[str]:
    addresses: set[str] = set()
    for index, alias in enumerate(spec.get("hostAliases", ())):
        address = alias.get("ip", "")
        if address in addresses:
            yield f"{path}.hostAliases[{index}].ip: duplicate ip {address}"
        addresses.add(address)
    for volume in spec.get("volumes", ()):
        if not any((volume.get("projected") or {"": True}).get("sources", (True,))):
            yield f'volume "{volume["name"]}" (Projected) has no sources provided'
    secrets: set[str] = set()
    for index, secret in enumerate(spec.get("imagePullSecrets", ())):
        name = secret.get("name", "")
        if not name:
            yield (f'{path}.imagePullSecrets[{index}].name: invalid empty name ""')
        elif name in secrets:
            yield f'{path}.imagePullSecrets[{index}].name: duplicate imagePullSecret "{name}"'
        secrets.add(name)
