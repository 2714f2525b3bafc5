"""WebAssembly artifacts: manifests whose layers are modules instead of archives of files.

    manifest, its configuration → a configuration with `/NAME` as entrypoint, an id for each layer

Pure. A layer becomes a tree with one file, which a runtime finds as it finds a program.
Source: CNCF Wasm OCI Artifact layout; OCI image-spec 1.1, "Guidelines for Artifact Usage";
runwasi, which runs the first argument as a file of the root file system.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from moorage.engine.images.image import MalformedImageError
from moorage.engine.images.manifest import Descriptor, Manifest, Platform, digest_of

MODULE_PLATFORM = Platform.parse("wasi/wasm")
"""The platform of modules for which no handler was named, as of an archive."""

_TITLE = "org.opencontainers.image.title"
_DEFAULT_NAME = "main.wasm"
_MAX_NAME_BYTES = 255
_WHITEOUT = ".wh."


class _Published(msgspec.Struct):
    os: str = ""
    config: dict[str, Any] | None = None


def module_image(
    manifest: Manifest, configuration: bytes, platform: Platform
) -> tuple[bytes, tuple[str, ...], str]:
    """Return an artifact's configuration as an image, a diff-id for each layer, and its platform.

    The first module is the entrypoint. Raises MalformedImageError: a platform that is not WASI's,
    a module for another version of it, layers of other kinds, two modules with one name.
    """
    published = _parsed(configuration)
    system = _system(published, platform)
    for layer in manifest.layers:
        if not layer.is_module:
            raise MalformedImageError(
                f"it has a layer of {layer.media_type or 'no media type'} beside WebAssembly "
                "modules, which is not unpacked; build an image for the platform wasip1/wasm that "
                "has all of it as files"
            )
    names = [_file_name(layer) for layer in manifest.layers]
    if not names:
        raise MalformedImageError("it is an artifact for WebAssembly without a module")
    twice, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise MalformedImageError(
            f"two of its modules are named {twice}; give each layer the annotation {_TITLE}"
        )
    diff_ids = tuple(map(_diff_id, manifest.layers))
    document = {
        "architecture": platform.architecture,
        "os": system,
        "config": (published.config or {}) | {"Entrypoint": [f"/{names[0]}"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    return json.dumps(document, sort_keys=True).encode(), diff_ids, f"{system}/wasm"


def file_of(layer: Descriptor) -> str:
    """Return the name of the single file that a layer's blob is, empty for an archive."""
    return _file_name(layer) if layer.is_module else ""


def _file_name(layer: Descriptor) -> str:
    # A title is any text, such as a path on the machine that pushed it.
    title = (layer.annotations or {}).get(_TITLE, "")
    return title if _is_plain(title) else _DEFAULT_NAME


def _is_plain(name: str) -> bool:
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        return False
    # A saved image would have a mark of deletion for the file.
    return not name.startswith(_WHITEOUT) and len(name.encode()) <= _MAX_NAME_BYTES


def _system(published: _Published, platform: Platform) -> str:
    if not platform.is_wasi:
        raise MalformedImageError(
            f"it is a WebAssembly module, which a handler for {platform} does not run; run the pod "
            'under a handler whose file has `platform = "wasi/wasm"`'
        )
    if published.os in MODULE_PLATFORM.systems and published.os not in platform.systems:
        raise MalformedImageError(
            f"it is a WebAssembly module for {published.os}, and the handler runs those for "
            f"{', '.join(platform.systems)}"
        )
    return published.os if published.os in platform.systems else platform.systems[0]


def _parsed(configuration: bytes) -> _Published:
    try:
        return msgspec.json.decode(configuration, type=_Published)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedImageError(f"its configuration cannot be read: {error}") from error


def _diff_id(layer: Descriptor) -> str:
    # The digest of no archive: the same bytes may be a layer of an ordinary image as well.
    return digest_of(f"module {layer.digest} as {_file_name(layer)}".encode())
