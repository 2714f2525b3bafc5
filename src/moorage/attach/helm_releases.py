"""Helm's releases among the objects of an attachment. Source: Helm docs, `meta.helm.sh`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import msgspec

from moorage.attach.manifests import DEFINITION
from moorage.attach.manifests.identity import Obj

_NAME = "meta.helm.sh/release-name"
_NAMESPACE = "meta.helm.sh/release-namespace"


class Release(msgspec.Struct, frozen=True, order=True):
    """A release's name, and the namespace that has Helm's record of it."""

    name: str
    namespace: str

    @property
    def removal(self) -> str:
        """The command that removes the release and its record."""
        return shlex.join(("helm", "uninstall", self.name, "-n", self.namespace))


def is_of_release(obj: Obj) -> bool:
    """Return whether Helm installed an object."""
    return bool((obj["metadata"].get("annotations") or {}).get(_NAME))


def releases_of(objects: Iterable[Obj]) -> tuple[Release, ...]:
    """Return the releases that objects are of, sorted.

    Definitions are left out: Helm keeps them when it uninstalls, and no release is left then. So
    are objects of namespaces, whose users could name a release of others, to have it uninstalled.
    """
    releases = set()
    for obj in objects:
        is_of_cluster = not obj["metadata"].get("namespace") and obj["kind"] != DEFINITION
        if is_of_cluster and is_of_release(obj):
            annotations = obj["metadata"]["annotations"]
            releases.add(Release(annotations[_NAME], annotations.get(_NAMESPACE, "")))
    return tuple(sorted(releases))
