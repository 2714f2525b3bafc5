"""Overlapping paths: files of a volume that others hide.

Source: `pkg/api/pod/warnings`, `warningsForOverlappingVirtualPaths`, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from moorage.apiserver.registry.kind import Obj

_COMPARED = 100
"""Files of one volume that are compared: every two of them may overlap."""

_Place = tuple[str, str]
"""The path of a file, and what it comes from: `""` where the volume has one source."""

_CERTIFICATE_FILES = (
    ("certificateChainPath", "PodCertificate chain"),
    ("keyPath", "PodCertificate key"),
    ("credentialBundlePath", "PodCertificate credential bundle"),
)


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
