"""Warnings about pod specifications: sentences for the `Warning` header.

Source: `pkg/api/pod/warnings` behaviour of Kubernetes 1.36. They are computed after admission, so
fields that admission adds from a RuntimeClass are warned about too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from moorage.api import quantity
from moorage.api.nodes import DEPRECATED
from moorage.apiserver.registry.kind import Obj

_COMPARED = 100
"""Files of one volume that are compared: every two of them may overlap."""
_CERTIFICATE_FILES = (
    ("certificateChainPath", "PodCertificate chain"),
    ("keyPath", "PodCertificate key"),
    ("credentialBundlePath", "PodCertificate credential bundle"),
)
_WHOLE_BYTES = ("memory", "ephemeral-storage")
_STORAGE = ("storage",)
_UNUSED_SINCE_31 = "deprecated in v1.28, non-functional in v1.31+"
_UNUSED_SINCE_25 = "deprecated in v1.22, non-functional in v1.25+"
_Place = tuple[str, str]
"""The path of a file, and what it comes from: `""` where the volume has one source."""


def overlap_warnings(volumes: Iterable[Obj]) -> Iterator[str]:
    """Return the warnings about files that share a path, or are in each other's way."""
    for volume in volumes:
        name = volume.get("name", "")
        for title, source in _plain_sources(volume):
            yield from _overlaps(name, title, _places(source, ""))
        if "projected" in volume:
            sources = volume["projected"].get("sources", ())
            for source in sources:
                if not source:
                    yield f'volume "{name}" (Projected) has no sources provided'
            places = (place for source in sources for place in _projected_places(source))
            yield from _overlaps(name, "Projected", places)


def _plain_sources(volume: Obj) -> Iterator[tuple[str, Obj]]:
    if "configMap" in volume:
        yield f'ConfigMap "{volume["configMap"].get("name", "")}"', volume["configMap"]
    if "secret" in volume:
        yield f'Secret "{volume["secret"].get("secretName", "")}"', volume["secret"]
    if "downwardAPI" in volume:
        yield "DownwardAPI", volume["downwardAPI"]


def _places(source: Obj, title: str) -> Iterator[_Place]:
    for item in source.get("items", ()):
        yield item.get("path", ""), title


def _projected_places(source: Obj) -> Iterator[_Place]:
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if field in source:
            yield from _places(source[field], f'{kind} "{source[field].get("name", "")}"')
    if "downwardAPI" in source:
        yield from _places(source["downwardAPI"], "DownwardAPI")
    if "serviceAccountToken" in source:
        yield source["serviceAccountToken"].get("path", ""), "ServiceAccountToken"
    if "clusterTrustBundle" in source:
        bundle = source["clusterTrustBundle"]
        name = bundle.get("name", bundle.get("signerName", ""))
        yield bundle.get("path", ""), f'ClusterTrustBundle "{name}"'
    if "podCertificate" in source:
        for field, title in _CERTIFICATE_FILES:
            yield source["podCertificate"].get(field, ""), title


def _overlaps(volume: str, title: str, places: Iterator[_Place]) -> Iterator[str]:
    earlier: list[_Place] = []
    for path, source in islice(places, _COMPARED):
        place = path.rstrip("/"), source
        for other in earlier:
            if _is_within(place[0], other[0]) or _is_within(other[0], place[0]):
                shown = f"{_shown(place)} with {_shown(other)}"
                yield f'volume "{volume}" ({title}): overlapping paths: {shown}'
        if place[0]:
            earlier.append(place)


def _is_within(path: str, directory: str) -> bool:
    return bool(path) and f"{path}/".startswith(f"{directory}/")


def _shown(place: _Place) -> str:
    path, source = place
    return f'"{path}" ({source})' if source else f'"{path}"'


REMOVED_SOURCES = {
    "photonPersistentDisk": (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", _UNUSED_SINCE_25),
    "storageos": ("storageOS", _UNUSED_SINCE_25),
    "quobyte": ("quobyte", _UNUSED_SINCE_25),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", _UNUSED_SINCE_31),
    "rbd": ("rbd", _UNUSED_SINCE_31),
}
"""Volume sources without a driver any more → their name in warnings, and the text."""


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
    for index, volume in enumerate(spec.get("volumes", ())):
        warnings += _volume_warnings(volume, f"{path}.volumes[{index}]")
    warnings += overlap_warnings(spec.get("volumes", ()))
    warnings += _duplicate_warnings(spec, path)
    if "overhead" in spec:
        warnings += _fraction_warnings(spec["overhead"], f"{path}.overhead")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field, ())):
            warnings += _container_warnings(container, f"{path}.{field}[{index}]")
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
        yield from node_term_warnings(term, at)


def node_term_warnings(term: Obj, path: str) -> Iterable[str]:
    """Return the warnings about deprecated labels in the expressions of a selector."""
    for number, expression in enumerate(term.get("matchExpressions", ())):
        key = expression.get("key", "")
        if key in DEPRECATED:
            yield f"{path}.matchExpressions[{number}].key: {key} is {DEPRECATED[key]}"


def claim_spec_warnings(spec: Obj, path: str) -> Iterable[str]:
    """Return the warnings about the specification of a volume claim: fractions of bytes."""
    resources = spec.get("resources", {})
    for side in ("requests", "limits"):
        yield from _fraction_warnings(resources.get(side, {}), f"{path}.resources.{side}", _STORAGE)


def _volume_warnings(volume: Obj, path: str) -> Iterable[str]:
    for source, (shown, text) in REMOVED_SOURCES.items():
        if source in volume:
            yield f"{path}.{shown}: {text}"
    template = volume.get("ephemeral", {}).get("volumeClaimTemplate", {})
    at = f"{path}.ephemeral.volumeClaimTemplate.spec"
    yield from claim_spec_warnings(template.get("spec", {}), at)


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


def _fraction_warnings(
    resources: Obj, path: str, names: tuple[str, ...] = _WHOLE_BYTES
) -> Iterable[str]:
    for name in names:
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
            yield f'{path}.hostAliases[{index}].ip: duplicate ip "{address}"'
        addresses.add(address)
    secrets: set[str] = set()
    for index, secret in enumerate(spec.get("imagePullSecrets", ())):
        name = secret.get("name", "")
        if name in secrets:
            yield f'{path}.imagePullSecrets[{index}].name: duplicate name "{name}"'
        secrets.add(name)
    for index, secret in enumerate(spec.get("imagePullSecrets", ())):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
