"""Manifest files: read, and applied or deleted through the API, for any kind and version.

Resources are found by discovery and objects applied server-side, so no kind is hard-coded.
Source: API docs "Server-Side Apply", "Discovery API".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.api.errors import NotFoundError
from moorage.api.yaml_values import YamlError, parse_documents
from moorage.cluster.errors import ClusterError
from moorage.wire.client.discovery import NotServedError, ServedKinds
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.rest import Client, PatchType

MANAGER = "moor"
_DEFAULT_NAMESPACE = "default"


class ManifestError(ClusterError, ValueError):
    """A file has no Kubernetes objects, or an object of a kind that the server does not serve."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object of a manifest file; `place` names the file and the document in it."""

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
    """Return the objects in files, and in directories' `*.yaml` sorted by file name.

    Raises ManifestError for a file that cannot be read or has anything else.
    """
    return [manifest for path in paths for file in _files(path) for manifest in _read(file)]


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]


def _read(path: Path) -> Iterator[Manifest]:
    try:
        documents = parse_documents(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from error
    except YamlError as error:
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
    """Applies and deletes manifests through one client; caches discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds = ServedKinds(client)

    async def apply(self, manifest: Manifest) -> None:
        """Apply the object server-side. Raises StatusError, ManifestError."""
        resource = await self._resource(manifest)
        await self._client.patch(
            resource,
            manifest.name,
            manifest.document,
            manifest.namespace,
            kind=PatchType.APPLY,
            field_manager=MANAGER,
        )

    async def delete(self, manifest: Manifest) -> None:
        """Delete the object; a missing one is no error. Raises StatusError, ManifestError."""
        resource = await self._resource(manifest)
        with suppress(NotFoundError):
            await self._client.delete(resource, manifest.name, manifest.namespace)

    async def _resource(self, manifest: Manifest) -> Resource[PartialObject]:
        try:
            return await self._kinds.resource(manifest.api_version, manifest.kind)
        except NotServedError as error:
            raise ManifestError(
                f"{manifest.place}: the server does not serve {manifest.kind} of "
                f"{manifest.api_version}"
            ) from error
