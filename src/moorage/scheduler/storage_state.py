"""Storage as the scheduler sees it: claims, volumes and classes, with what it has just decided.

A volume reserved for a claim, and a node selected for one, count at once, until the API shows them
or the binding fails: else two pods in a row would get one volume.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.claims import class_of_volume
from moorage.api.claims.annotations import SELECTED_NODE
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.wire.client.informer import object_key


class StorageState:
    """The claims, volumes and classes of the cluster. Not for concurrent use."""

    def __init__(self) -> None:
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._by_class: dict[str, dict[str, PersistentVolume]] = {}
        self._classes: dict[str, StorageClass] = {}
        self._reserved: dict[str, str] = {}
        self._selected: dict[str, str] = {}

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return a claim by `namespace/name`."""
        return self._claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def storage_class(self, name: str) -> StorageClass | None:
        return self._classes.get(name)

    def volumes_for(self, claim: PersistentVolumeClaim, class_name: str) -> list[PersistentVolume]:
        """Return the volumes of a class, without those that are reserved for other claims."""
        key = object_key(claim.metadata)
        reserved = self._reserved
        return [
            volume
            for name, volume in self._by_class.get(class_name, {}).items()
            if reserved.get(name, key) == key
        ]

    def selected_node(self, claim: PersistentVolumeClaim) -> str:
        """Return the node that the claim's volume is to be made on, "" for none."""
        key = object_key(claim.metadata)
        return self._selected.get(key) or claim.metadata.annotations.get(SELECTED_NODE, "")

    # what the API shows

    def set_claim(self, claim: PersistentVolumeClaim) -> None:
        self._claims[object_key(claim.metadata)] = claim

    def remove_claim(self, key: str) -> None:
        self._claims.pop(key, None)

    def set_volume(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        self.remove_volume(name)
        self._volumes[name] = volume
        self._by_class.setdefault(class_of_volume(volume), {})[name] = volume

    def remove_volume(self, name: str) -> None:
        volume = self._volumes.pop(name, None)
        if volume is None:
            return
        alike = self._by_class[class_of_volume(volume)]
        del alike[name]
        if not alike:
            del self._by_class[class_of_volume(volume)]

    def set_class(self, storage_class: StorageClass) -> None:
        self._classes[storage_class.metadata.name] = storage_class

    def remove_class(self, name: str) -> None:
        self._classes.pop(name, None)

    # what has been decided

    def reserve(self, volumes: Iterable[tuple[str, str]], claims: Iterable[str], node: str) -> None:
        """Count volumes as those of claims, given as (volume, claim), and a node as selected."""
        self._reserved.update(volumes)
        self._selected.update(dict.fromkeys(claims, node))

    def release(self, volumes: Iterable[tuple[str, str]], claims: Iterable[str]) -> None:
        """Let the API alone decide again."""
        for name, _ in volumes:
            self._reserved.pop(name, None)
        for key in claims:
            self._selected.pop(key, None)
