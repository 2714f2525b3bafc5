"""Image layouts: OCI archives, with the documents that describe their blobs.

Documents are encoded in one way, so that equal images have equal digests.
Source: OCI image-spec, "Image Layout", "Image Manifest"; the annotation `io.containerd.image.name`
is how engines, containerd and our own, learn a full name.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

CONFIGURATION_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")

Document = dict[str, Any]


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(media_type: str, name: str, size: int) -> Document:
    """Return the description of a blob by its digest and its size in bytes."""
    return {"mediaType": media_type, "digest": name, "size": size}


def manifest(configuration: Document, layers: Iterable[Document]) -> bytes:
    """Return the manifest of an image by the descriptors of its blobs."""
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": configuration,
            "layers": list(layers),
        }
    )


def index_entry(content: bytes, name: str, platform: Mapping[str, str] | None = None) -> Document:
    """Return the entry of a manifest in the index, under the image's full name."""
    entry = descriptor(_MANIFEST_TYPE, digest(content), len(content))
    entry["annotations"] = dict.fromkeys(_NAMES, name)
    return entry if platform is None else {**entry, "platform": dict(platform)}


def add_documents(archive: tarfile.TarFile, entries: Iterable[Document]) -> None:
    """Add the layout's version and the index, which come before the blobs."""
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": list(entries)}
    add_file(archive, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    add_file(archive, "index.json", encode(index))


def add_blob(archive: tarfile.TarFile, name: str, size: int, file: BinaryIO) -> None:
    """Add a blob by its digest."""
    header = tarfile.TarInfo(f"blobs/sha256/{name.removeprefix('sha256:')}")
    header.size = size
    archive.addfile(header, file)


def add_file(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    header = tarfile.TarInfo(path)
    header.size = len(content)
    archive.addfile(header, io.BytesIO(content))
