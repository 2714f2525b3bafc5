"""Layers and images made by hand, the hostile ones too."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.engine.images.manifest import Platform

HERE = Platform.of_this_machine().architecture


@dataclass(frozen=True)
class Entry:
    """One entry of a layer; a plain file by default."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    owner: tuple[int, int] = (0, 0)
    device: tuple[int, int] = (0, 0)
    mtime: float = 1_000_000_000
    xattrs: Mapping[str, str] | None = None


def directory(name: str, mode: int = 0o755, **more: Any) -> Entry:
    return Entry(name, kind=tarfile.DIRTYPE, mode=mode, **more)


def link(name: str, target: str) -> Entry:
    return Entry(name, kind=tarfile.SYMTYPE, link=target, mode=0o777)


def hard_link(name: str, target: str) -> Entry:
    return Entry(name, kind=tarfile.LNKTYPE, link=target)


def layer(*entries: Entry) -> bytes:
    """An archive of these entries, in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            header = tarfile.TarInfo(entry.name)
            header.type, header.mode, header.linkname = entry.kind, entry.mode, entry.link
            header.uid, header.gid = entry.owner
            header.devmajor, header.devminor = entry.device
            header.mtime, header.size = entry.mtime, len(entry.content)
            header.pax_headers = {
                f"SCHILY.xattr.{name}": value for name, value in (entry.xattrs or {}).items()
            }
            archive.addfile(header, io.BytesIO(entry.content))
    return buffer.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def configuration(layers: Iterable[bytes], process: Mapping[str, Any] | None = None) -> bytes:
    return json.dumps(
        {
            "architecture": HERE,
            "os": "linux",
            "config": process or {},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
    ).encode()


def oci_archive(
    path: Path,
    names: Sequence[str],
    layers: Sequence[bytes],
    process: Mapping[str, Any] | None = None,
    *,
    packed: Mapping[int, bytes] | None = None,
    kinds: Mapping[int, str] | None = None,
) -> Path:
    """An OCI archive of one image under several names; `packed` are blobs instead of plain ones."""
    settings = configuration(layers, process)
    blobs = {digest(settings): settings}
    described = []
    for number, plain in enumerate(layers):
        content = (packed or {}).get(number, plain)
        kind = (kinds or {}).get(number, "")
        blobs[digest(content)] = content
        described.append(
            {
                "mediaType": f"application/vnd.oci.image.layer.v1.tar{kind}",
                "digest": digest(content),
                "size": len(content),
            }
        )
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(settings),
                "size": len(settings),
            },
            "layers": described,
        }
    ).encode()
    blobs[digest(manifest)] = manifest
    listed = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(manifest),
            "size": len(manifest),
            "annotations": {"io.containerd.image.name": name},
        }
        for name in names
    ]
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": listed}).encode(),
        **{f"blobs/sha256/{name.removeprefix('sha256:')}": blob for name, blob in blobs.items()},
    }
    path.write_bytes(layer(*(Entry(name, file) for name, file in files.items())))
    return path


MODULE = b"\0asm\1\0\0\0"
WASM_CONFIG = "application/vnd.wasm.config.v0+json"
WASM_LAYER = "application/wasm"
TITLE = "org.opencontainers.image.title"


def artifact_archive(
    path: Path,
    name: str,
    modules: Sequence[tuple[bytes, str]],
    settings: Mapping[str, Any] | None = None,
    *,
    kind: str = WASM_CONFIG,
    layer_kind: str = WASM_LAYER,
    spoiled: bytes = b"",
) -> Path:
    """An OCI archive of a WebAssembly artifact; modules are contents with titles.

    `spoiled` is what the blobs of modules hold instead.
    """
    config = json.dumps(settings or {}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": layer_kind,
            "config": {"mediaType": kind, "digest": digest(config), "size": len(config)},
            "layers": [
                {
                    "mediaType": layer_kind,
                    "digest": digest(module),
                    "size": len(module),
                    **({"annotations": {TITLE: title}} if title else {}),
                }
                for module, title in modules
            ],
        }
    ).encode()
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": digest(manifest),
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": name},
    }
    blobs = {digest(blob): blob for blob in (config, manifest)}
    blobs |= {digest(module): spoiled or module for module, _ in modules}
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
        **{f"blobs/sha256/{name.removeprefix('sha256:')}": blob for name, blob in blobs.items()},
    }
    path.write_bytes(layer(*(Entry(name, file) for name, file in files.items())))
    return path


def docker_archive(path: Path, names: Sequence[str], layers: Sequence[bytes]) -> Path:
    """What `docker save` writes; a layer that repeats is a link to the first."""
    settings = configuration(layers)
    entries, paths = [Entry("settings.json", settings)], []
    seen: dict[bytes, str] = {}
    for number, content in enumerate(layers):
        name = f"{number}/layer.tar"
        paths.append(name)
        if content in seen:
            entries.append(link(name, f"../{seen[content]}"))
        else:
            seen[content] = name
            entries.append(Entry(name, content))
    saved = [{"Config": "settings.json", "RepoTags": list(names), "Layers": paths}]
    entries.append(Entry("manifest.json", json.dumps(saved).encode()))
    path.write_bytes(layer(*entries))
    return path


def packed(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=1, mtime=0)
