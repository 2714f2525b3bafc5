"""Image values: names, configuration and layers.

Pure. Source: OCI image-spec, "Image Configuration"; CRI Image.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

DOCUMENT_LIMIT_BYTES = 8 << 20
"""Size limit of a manifest and of a configuration."""

SHA256 = "sha256:"

# Digits of an int64. A longer number is not parsed: Python refuses very long ones.
_MAX_UID = 2**63 - 1
_UID_DIGITS = 1000


class MalformedImageError(ValueError):
    """A manifest, an index or a configuration is invalid; the text has the error."""


class ImageConfiguration(msgspec.Struct, frozen=True):
    """The defaults for a container of the image."""

    user: str = ""
    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = ""
    stop_signal: str = ""
    volumes: tuple[str, ...] = ()
    exposed_ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the store.

    `id` is the digest of its configuration blob; `tags` are full names with tag, `digests` full
    names with the digest of the manifest as the registry serves it (that of the index, for an image
    with several platforms). `layers` are diff-ids from the bottom up; `size_bytes` is their size on
    disk, shared ones included. `platform` is the one that was chosen from an index, or that of a
    WebAssembly artifact; empty for any other image.
    """

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    layers: tuple[str, ...]
    size_bytes: int
    configuration: ImageConfiguration
    is_pinned: bool = False
    platform: str = ""

    @property
    def uid(self) -> int | None:
        """The numeric user of the image, None when it names one. Source: CRI Image.uid."""
        user = self._user
        if not (user.isdecimal() and user.isascii()):
            return None
        # A number beyond the message's range counts as a name, as in containerd.
        return int(user) if len(user) <= _UID_DIGITS and int(user) <= _MAX_UID else None

    @property
    def username(self) -> str:
        """The user's name, empty when it is a number or none is set."""
        return "" if self.uid is not None else self._user

    @property
    def _user(self) -> str:
        return self.configuration.user.partition(":")[0]

    @property
    def name(self) -> str:
        """The name to show to users."""
        return next(iter((*self.tags, *self.digests)), self.id)


class _Process(msgspec.Struct, rename="pascal"):
    user: str | None = None
    env: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    working_dir: str | None = None
    stop_signal: str | None = None
    volumes: dict[str, msgspec.Raw] | None = None
    exposed_ports: dict[str, msgspec.Raw] | None = None
    labels: dict[str, str] | None = None


class _RootFilesystem(msgspec.Struct):
    diff_ids: tuple[str, ...] = ()


class _Blob(msgspec.Struct):
    rootfs: _RootFilesystem
    config: _Process | None = None


def read_configuration(
    blob: bytes, most_bytes: int = DOCUMENT_LIMIT_BYTES
) -> tuple[ImageConfiguration, tuple[str, ...]]:
    """Parse a configuration blob. Returns the configuration and the diff-ids from the bottom up.

    Raises MalformedImageError.
    """
    if len(blob) > most_bytes:
        raise MalformedImageError(f"its configuration is larger than {most_bytes} bytes")
    try:
        read = msgspec.json.decode(blob, type=_Blob)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedImageError(f"its configuration cannot be read: {error}") from error
    for diff_id in read.rootfs.diff_ids:
        check_digest(diff_id)
    process = read.config or _Process()
    configuration = ImageConfiguration(
        user=process.user or "",
        env=process.env or (),
        entrypoint=process.entrypoint or (),
        command=process.cmd or (),
        working_dir=process.working_dir or "",
        stop_signal=process.stop_signal or "",
        volumes=tuple(process.volumes or ()),
        exposed_ports=tuple(process.exposed_ports or ()),
        labels=process.labels or {},
    )
    return configuration, read.rootfs.diff_ids


def layers_of(configuration: bytes, count: int) -> tuple[str, ...]:
    """Return the diff-ids of a configuration, as many as the manifest has layers.

    Raises MalformedImageError.
    """
    _, layers = read_configuration(configuration)
    if len(layers) != count:
        raise MalformedImageError(
            f"its configuration lists {len(layers)} layers, its manifest {count}"
        )
    return layers


def check_digest(text: str) -> str:
    """Validate a digest, since it becomes a file name. Raises MalformedImageError."""
    hexadecimal = text.removeprefix(SHA256)
    if len(text) != len(SHA256) + 64 or len(hexadecimal) != 64:
        raise MalformedImageError(f"{text!r} is not a sha256 digest")
    if not set(hexadecimal) <= set("0123456789abcdef"):
        raise MalformedImageError(f"{text!r} is not a sha256 digest")
    return text
