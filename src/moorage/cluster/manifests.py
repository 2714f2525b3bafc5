"""Applying and deleting manifest files, whatever kinds and versions they name.

Resources are found by discovery, objects are applied server-side, so nothing here knows a kind.
Source: API docs "Server-Side Apply", "Discovery API".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.api.errors import NotFoundError
from moorage.api.yaml_values import YamlError, parse_documents
from moorage.client import Client, PatchType
from moorage.client.discovery import read_version
from moorage.client.resources import PartialObject, Resource
from moorage.cluster.errors import ClusterError

MANAGER = "moor"
_DEFAULT_NAMESPACE = "default"


class ManifestError(ClusterError, ValueError):
    """A file that holds no Kubernetes objects, or one of a kind the server does not serve."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object as a file says it, and where that file is."""

    place: str
    document: dict[str, Any]

    @property
    def api_version(self) -> str:
        return str(self.document["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace", _DEFAULT_NAMESPACE))


def read_manifests(paths: Iterable[Path]) -> list[Manifest]:
    """Return the objects of files and of directories' `*.yaml`, by name. Raises ManifestError."""
    return [manifest for path in paths for file in _files(path) for manifest in _read(file)]


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]


def _read(path: Path) -> Iterator[Manifest]:
    try:
        documents = parse_documents(path.read_bytes())
    except (OSError, YamlError) as error:
        raise ManifestError(f"{path}: {error}") from error
    for index, document in enumerate(documents):
        if document is None:
            continue
        place = f"{path}, document {index + 1}"
        is_object = (
            isinstance(document, dict)
            and isinstance(document.get("metadata"), dict)
            and all(document.get(key) for key in ("apiVersion", "kind"))
            and document["metadata"].get("name")
        )
        if not is_object:
            raise ManifestError(f"{place}: apiVersion, kind and metadata.name are needed")
        yield Manifest(place, document)


class Applier:
    """Applies manifests through one client; what discovery said is remembered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources: dict[str, dict[str, Resource[PartialObject]]] = {}

    async def apply(self, manifest: Manifest) -> None:
        """Bring the object to what the file says. Raises StatusError, ManifestError."""
        resource = await self._resource(manifest)
        await self._client.patch(
            resource,
            manifest.name,
            manifest.document,
            manifest.namespace if resource.is_namespaced else None,
            kind=PatchType.APPLY,
            field_manager=MANAGER,
        )

    async def delete(self, manifest: Manifest) -> None:
        """Delete the object; one that is gone is no error. Raises StatusError, ManifestError."""
        resource = await self._resource(manifest)
        namespace = manifest.namespace if resource.is_namespaced else None
        try:
            await self._client.delete(resource, manifest.name, namespace)
        except NotFoundError:
            return

    async def _resource(self, manifest: Manifest) -> Resource[PartialObject]:
        version = manifest.api_version
        if version not in self._resources:
            self._resources[version] = await self._discover(version)
        resource = self._resources[version].get(manifest.kind)
        if resource is None:
            raise ManifestError(
                f"{manifest.place}: the server does not serve {manifest.kind} of {version}"
            )
        return resource

    async def _discover(self, version: str) -> dict[str, Resource[PartialObject]]:
        try:
            served = await read_version(self._client, version)
        except NotFoundError:
            return {}
        return {entry.resource.kind: entry.resource for entry in served}
