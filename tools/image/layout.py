"""OCI layout of the image, in one tar archive that `moor image load`, ctr and skopeo read."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

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

USER = "65532:65532"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Threads that read files would have memory of their own each, for good.
    "MALLOC_ARENA_MAX": "1",
}


def configuration(
    architecture: str, version: str, plain_layers: Sequence[bytes], moment: int
) -> bytes:
    """Return the image's configuration; `plain_layers` are its layers, not compressed."""
    return encode(
        {
            "created": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "Env": [f"{name}={value}" for name, value in _ENVIRONMENT.items()],
                "Entrypoint": ["moor"],
                "WorkingDir": "/",
                "Labels": {
                    "org.opencontainers.image.title": "moorage",
                    "org.opencontainers.image.version": version,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.description": "All parts of Moorage",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in plain_layers]},
        }
    )


def write_archive(
    target: Path, name: str, architecture: str, described: bytes, layers: Sequence[bytes]
) -> str:
    """Write the archive of an image by its configuration and packed layers; return its digest.

    It is written beside the target and renamed: an image that is being loaded stays whole.
    """
    content = manifest(
        descriptor(CONFIGURATION_TYPE, digest(described), len(described)),
        [descriptor(f"{LAYER_TYPE}+gzip", digest(layer), len(layer)) for layer in layers],
    )
    entry: Document = index_entry(content, name, {"architecture": architecture, "os": "linux"})
    scratch = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with tarfile.open(scratch, "w", format=tarfile.PAX_FORMAT) as archive:
            add_documents(archive, [entry])
            blobs = {digest(blob): blob for blob in (described, content, *layers)}
            for blob in sorted(blobs):
                add_blob(archive, blob, len(blobs[blob]), io.BytesIO(blobs[blob]))
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return digest(content)
