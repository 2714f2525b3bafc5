"""Seccomp profiles of the node's files: OCI's `linux.seccomp` as JSON.

Source: CRI SecurityProfile.localhost_ref; OCI runtime-spec, "Seccomp".
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import Document
from moorage.linux.trust import distrust

_FIELDS = (
    "defaultAction",
    "defaultErrnoRet",
    "architectures",
    "flags",
    "listenerPath",
    "listenerMetadata",
    "syscalls",
)


def read_profile(path: str) -> Document:
    """Read a profile. Blocks. Raises InvalidError naming the file."""
    place = Path(path)
    if not place.is_absolute():
        raise InvalidError(f"seccomp profile {path!r} must be an absolute path")
    if "\0" in path:
        raise InvalidError(f"seccomp profile {path!r} is not a valid path: it contains NUL")
    distrusted = distrust(place)
    if distrusted is not None:
        raise InvalidError(f"refusing seccomp profile {path}: {distrusted}")
    try:
        content = place.read_bytes()
    except OSError as error:
        raise InvalidError(
            f"seccomp profile {path} cannot be read: {error.strerror}; install it on this node"
        ) from error
    try:
        profile = msgspec.json.decode(content, type=Document)
    except msgspec.MsgspecError as error:
        raise InvalidError(f"seccomp profile {path} is not a JSON object: {error}") from error
    if not isinstance(profile.get("defaultAction"), str):
        raise InvalidError(f"seccomp profile {path} has no defaultAction; add one")
    return {name: profile[name] for name in _FIELDS if name in profile}
