"""Images in an OCI archive: blobs by digest, and an index that names them.

Layers stay uncompressed: on one host, compression costs more than it saves. Images that share a
layer share its blob. The archive's bytes depend on the images alone.
Source: OCI image-spec, "Image Configuration".
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from moorage.engine.image_layout import (
    CONFIGURATION_TYPE,
    LAYER_TYPE,
    Document,
    add_blob,
    add_documents,
    descriptor,
    digest,
    encode,
    index_entry,
    manifest,
)
from moorage.linux.program import Platform

# An image's age does not depend on the host that built it.
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
        """The image's configuration; its digest is the image's ID."""
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
                "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in self.layers]},
            }
        )

    @property
    def id(self) -> str:
        """The image's ID in the CRI: the digest of its configuration."""
        return digest(self.configuration)


def write_archive(images: Iterable[Image]) -> bytes:
    """Return one archive with all the images. Raises ValueError if two have the same name."""
    blobs: dict[str, bytes] = {}
    listed: dict[str, Document] = {}
    for image in images:
        if image.name in listed:
            raise ValueError(f"two images have the name {image.name}")
        content = manifest(
            _blob(image.configuration, CONFIGURATION_TYPE, blobs),
            [_blob(layer, LAYER_TYPE, blobs) for layer in image.layers],
        )
        blobs[digest(content)] = content
        listed[image.name] = index_entry(content, image.name, image.platform.to_object())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        add_documents(archive, listed.values())
        for name in sorted(blobs):
            add_blob(archive, name, len(blobs[name]), io.BytesIO(blobs[name]))
    return buffer.getvalue()


def _blob(content: bytes, media_type: str, blobs: dict[str, bytes]) -> Document:
    """Add a blob to `blobs`; return its descriptor."""
    name = digest(content)
    blobs[name] = content
    return descriptor(media_type, name, len(content))
