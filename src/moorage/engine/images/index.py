"""Image index: the images and their names, in one file that survives a crash.

    index.json                   ids, names, layers
    configurations/<id>          each image's configuration as it was published

Source: CRI image references (id, tag or digest in every call).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping
from pathlib import Path

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import NotFoundError
from moorage.engine.images.image import SHA256, Image, MalformedImageError, read_configuration
from moorage.linux.atomic_file import write_durably
from moorage.linux.trust import make_private
from moorage.wire.cri.reference import InvalidReferenceError, parse

log = Log(__name__)

_FORM = 1
_ID_PREFIX = re.compile(r"[0-9a-f]{3,64}")


class _Entry(msgspec.Struct, frozen=True):
    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size_bytes: int
    platform: str = ""


class _File(msgspec.Struct, frozen=True):
    form: int
    images: tuple[_Entry, ...]


Images = Mapping[str, Image]
"""Images by id."""


def find(images: Images, reference: str, platforms: Collection[str] = ()) -> Image:
    """Return the image of that id (with or without `sha256:`, or a prefix), tag or digest.

    With platforms, an image that was chosen for another is not found by a name.

    Raises NotFoundError when there is none, or when several ids match.
    """
    bare = reference.removeprefix(SHA256)
    image = images.get(SHA256 + bare)
    if image is None and bare == reference:
        image = _named(images, reference, platforms)
    if image is not None:
        return image
    if _ID_PREFIX.fullmatch(bare):
        fitting = [entry for entry in images.values() if entry.id.startswith(SHA256 + bare)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise NotFoundError(f"image {reference}: several ids match; use a longer prefix")
    raise NotFoundError(f"image {reference} is not present; pull it first")


def with_image(images: Images, image: Image) -> dict[str, Image]:
    """Return the images with one added; its tags are removed from other images.

    An image of the same id keeps its names.
    """
    changed = {}
    for other in images.values():
        if other.id != image.id:
            tags = tuple(tag for tag in other.tags if tag not in image.tags)
            changed[other.id] = (
                other if tags == other.tags else msgspec.structs.replace(other, tags=tags)
            )
    before = images.get(image.id, image)
    image = msgspec.structs.replace(
        image,
        tags=_joined(before.tags, image.tags),
        digests=_joined(before.digests, image.digests),
        is_pinned=before.is_pinned or image.is_pinned,
    )
    changed[image.id] = image
    return changed


def without_image(images: Images, image_id: str) -> dict[str, Image]:
    """Return the images without one."""
    return {id_: image for id_, image in images.items() if id_ != image_id}


class IndexFiles:
    """The files of the index. Two writers must take turns."""

    def __init__(self, directory: Path, pinned: Collection[str]) -> None:
        """`pinned` are full names of images that kubelets must not collect."""
        self._index = directory / "index.json"
        self._configurations = directory / "configurations"
        self._pinned = frozenset(pinned)

    def load(self, present: Container[str]) -> dict[str, Image]:
        """Load the images whose layers are all present. Blocks. Raises OSError."""
        make_private(self._configurations)
        try:
            read = msgspec.json.decode(self._index.read_bytes(), type=_File)
        except FileNotFoundError:
            read = _File(_FORM, ())
        images: dict[str, Image] = {}
        for entry in read.images:
            try:
                image = self.image(
                    self.configuration(entry.id), entry.id, entry.tags, entry.digests,
                    entry.size_bytes, entry.platform,
                )  # fmt: skip
            except (FileNotFoundError, MalformedImageError) as error:
                log.warning("image forgotten", id=entry.id, error=error)
                continue
            if all(layer in present for layer in image.layers):
                images[image.id] = image
            else:
                log.warning("image forgotten", id=entry.id, error="a layer is missing")
        for path in self._configurations.iterdir():
            if SHA256 + path.name not in images:
                path.unlink()
        return images

    def image(
        self, configuration: bytes, image_id: str, tags: Iterable[str], digests: Iterable[str],
        size_bytes: int, platform: str = "",
    ) -> Image:  # fmt: skip
        """Build an image from its parts. Raises MalformedImageError."""
        read, layers = read_configuration(configuration)
        tags = tuple(tags)
        return Image(
            id=image_id,
            tags=tags,
            digests=tuple(digests),
            layers=layers,
            size_bytes=size_bytes,
            configuration=read,
            is_pinned=not self._pinned.isdisjoint(tags),
            platform=platform,
        )

    def configuration(self, image_id: str) -> bytes:
        """Return an image's configuration as it was published. Blocks. Raises OSError."""
        return self._configuration(image_id).read_bytes()

    def keep(self, image_id: str, configuration: bytes) -> None:
        """Write an image's configuration, before the index names it. Blocks. Raises OSError."""
        write_durably(self._configuration(image_id), configuration)

    def save(self, images: Images) -> None:
        """Write the index durably. Blocks. Raises OSError; the former index stays then."""
        entries = tuple(
            _Entry(image.id, image.tags, image.digests, image.size_bytes, image.platform)
            for image in images.values()
        )
        write_durably(self._index, msgspec.json.encode(_File(_FORM, entries)))

    def forget(self, image_id: str) -> None:
        """Remove the configuration of an image that the index no longer names. Blocks."""
        self._configuration(image_id).unlink(missing_ok=True)

    def _configuration(self, image_id: str) -> Path:
        return self._configurations / image_id.removeprefix(SHA256)


def _named(images: Images, reference: str, platforms: Collection[str]) -> Image | None:
    try:
        full = parse(reference).full
    except InvalidReferenceError:
        return None
    named = [image for image in images.values() if full in (*image.tags, *image.digests)]
    if platforms:
        named = [image for image in named if not image.platform or image.platform in platforms]
    return next(iter(named), None)


def _joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
