"""Images in an OCI archive: blobs by digest, and an index that names them.

Layers stay uncompressed: on one machine, packing them costs more than it saves. Images that share
a layer share its blob. The bytes depend on the images alone.
Source: OCI image-spec, "Image Layout", "Image Manifest", "Image Configuration"; the annotation
`io.containerd.image.name` is how engines, containerd and our own, learn a full name.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from moorage.linux.program import Platform

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIGURATION_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
# An image's age is not that of the machine that made it.
_CREATED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image: its full name with tag, its layers from the bottom up, and how it is started."""

    name: str
    platform: Platform
    layers: tuple[bytes, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[str, ...] = ()
    stop_signal: str = ""
    description: str = ""

    @cached_property
    def configuration(self) -> bytes:
        """The image's configuration; its digest is the image's id."""
        process = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "ExposedPorts": {port: {} for port in self.ports},
            "StopSignal": self.stop_signal,
            "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.description": self.description},
        }
        return encode(
            {
                "created": _CREATED,
                **self.platform.to_object(),
                "config": {key: value for key, value in process.items() if value},
                "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in self.layers]},
            }
        )

    @property
    def id(self) -> str:
        """What the CRI calls the image: the digest of its configuration."""
        return digest(self.configuration)


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write_archive(images: Iterable[Image]) -> bytes:
    """One archive with all the images. Raises ValueError when two have the same name."""
    blobs: dict[str, bytes] = {}
    listed: dict[str, dict[str, object]] = {}
    for image in images:
        if image.name in listed:
            raise ValueError(f"two images have the name {image.name}")
        listed[image.name] = {
            **_blob(_manifest(image, blobs), MANIFEST_TYPE, blobs),
            "platform": image.platform.to_object(),
            "annotations": dict.fromkeys(NAME_ANNOTATIONS, image.name),
        }
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": list(listed.values())}
    files = {
        "oci-layout": encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": encode(index),
        **{f"blobs/sha256/{name.removeprefix('sha256:')}": blobs[name] for name in sorted(blobs)},
    }
    return _tar(files)


def _manifest(image: Image, blobs: dict[str, bytes]) -> bytes:
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _blob(image.configuration, CONFIGURATION_TYPE, blobs),
            "layers": [_blob(layer, LAYER_TYPE, blobs) for layer in image.layers],
        }
    )


def _blob(content: bytes, media_type: str, blobs: dict[str, bytes]) -> dict[str, object]:
    """Put a blob with the others and describe it."""
    name = digest(content)
    blobs[name] = content
    return {"mediaType": media_type, "digest": name, "size": len(content)}


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            header = tarfile.TarInfo(path)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
