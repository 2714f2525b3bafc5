"""Backup archives of a cluster: its database, settings, certificates and keys in one file.

    cluster.tar.gz:  manifest.json  state.db  cluster.json  pki/*.crt  pki/*.key

The manifest has the size and the SHA-256 of every other member. An archive can be made while the
cluster runs; it holds the keys of the cluster, so only its owner can read it. Images and the data
of volumes are not in it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from moorage import __version__
from moorage.apiserver.storage import Recorded, StoreBrokenError, copy_database
from moorage.cluster.errors import ClusterError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.linux.descriptors import open_regular_file

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE, SETTINGS, PKI = "state.db", "cluster.json", "pki"
_BLOCK = 1 << 20
_LONGEST_MANIFEST = 1 << 20


class BackupError(ClusterError):
    """A backup cannot be made, or an archive is not one."""


class Member(msgspec.Struct, frozen=True):
    """A file of an archive: its size in bytes and its SHA-256 in hex."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, and of which cluster at which revision."""

    format: int
    version: str
    created: str
    cluster: str
    cluster_id: str
    identity: str
    revision: int
    files: dict[str, Member]

    @property
    def recorded(self) -> Recorded:
        """Identity and last revision of the store."""
        return Recorded(self.identity, self.revision)


class _PlainFile(tarfile.TarInfo):
    """A header of a plain file, which is all that a backup has.

    Others are refused before their content is read: that of a long name or of attributes would be
    read into memory, whatever its size.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise tarfile.ReadError(f"{header.name!r} is not a plain file")
        return header


def back_up(layout: Layout, settings: Settings, archive: Path, now: datetime) -> Manifest:
    """Write a backup of a cluster, running or not, to a new file; return its manifest.

    The file appears whole or not at all. Blocks.

    Raises BackupError if the file exists or the database cannot be copied, OSError.
    """
    if archive.exists():
        raise BackupError(f"{archive} exists; choose another name, or remove it first")
    prefix = f".{archive.name}."
    with tempfile.TemporaryDirectory(prefix=prefix, dir=archive.parent) as scratch:
        copy = Path(scratch, DATABASE)
        try:
            recorded = copy_database(layout.database, copy)
        except StoreBrokenError as error:
            raise BackupError(str(error)) from error
        sources = {DATABASE: copy, SETTINGS: layout.settings}
        sources |= {f"{PKI}/{path.name}": path for path in sorted(_pairs_in(layout.pki))}
        manifest = Manifest(
            format=FORMAT,
            version=__version__,
            created=now.astimezone(UTC).isoformat(timespec="seconds"),
            cluster=settings.name,
            cluster_id=settings.cluster_id,
            identity=recorded.identity,
            revision=recorded.revision,
            files={name: _member(path) for name, path in sources.items()},
        )
        whole = Path(scratch, "archive")
        _write(whole, manifest, sources)
        # A link fails if another process made the file meanwhile; a rename would replace it.
        try:
            os.link(whole, archive)
        except FileExistsError:
            raise BackupError(
                f"{archive} exists; choose another name, or remove it first"
            ) from None
    return manifest


def unpack(archive: Path, directory: Path) -> Manifest:
    """Unpack an archive into an empty directory; return its manifest.

    Writes only what the manifest lists, up to the size it states: an archive cannot write outside
    the directory, nor fill the disk beyond its own claim.

    Raises BackupError for a file that is not a backup, is cut off or changed; OSError.
    """
    try:
        # A pipe would block its opener.
        descriptor = open_regular_file(Path(os.path.realpath(archive)), os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise BackupError(f"{archive} is not a backup: it is not a regular file") from error
        raise
    try:
        with (
            open(descriptor, "rb") as file,
            tarfile.open(fileobj=file, mode="r:gz", tarinfo=_PlainFile) as tar,
        ):
            members = iter(tar)
            manifest = _manifest(archive, tar, next(members, None))
            found = {_extract(archive, tar, info, manifest, directory) for info in members}
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BackupError(f"{archive} is not a backup, or is cut off: {error}") from error
    if missing := sorted(manifest.files.keys() - found):
        raise BackupError(f"{archive} is cut off: {missing[0]} is missing")
    return manifest


def _pairs_in(pki: Path) -> Iterator[Path]:
    return (path for path in pki.iterdir() if path.suffix in (".crt", ".key") and path.is_file())


def _member(path: Path) -> Member:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Member(file.tell(), digest.hexdigest())


def _write(path: Path, manifest: Manifest, sources: dict[str, Path]) -> None:
    with (
        open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar,
    ):
        head = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        tar.addfile(_info(MANIFEST, len(head)), io.BytesIO(head))
        for name, source in sources.items():
            with source.open("rb") as content:
                tar.addfile(_info(name, manifest.files[name].size), content)
        tar.close()
        file.flush()
        os.fsync(file.fileno())


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info


def _manifest(archive: Path, tar: tarfile.TarFile, info: tarfile.TarInfo | None) -> Manifest:
    if info is None or info.name != MANIFEST or not info.isfile() or info.size > _LONGEST_MANIFEST:
        raise BackupError(f"{archive} is not a backup: it does not begin with {MANIFEST}")
    content = tar.extractfile(info)
    try:
        manifest = msgspec.json.decode(content.read() if content else b"", type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        # msgspec raises RecursionError for a value that is nested too deeply.
        raise BackupError(f"{archive}: {MANIFEST} is damaged: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(
            f"{archive} has format {manifest.format}, of version {manifest.version}; this version "
            f"reads format {FORMAT}"
        )
    for name in manifest.files:
        if name not in (DATABASE, SETTINGS) and not _is_of_pki(name):
            raise BackupError(f"{archive}: {MANIFEST} names {name!r}, which no backup has")
    if not {DATABASE, SETTINGS, f"{PKI}/ca.crt"} <= manifest.files.keys():
        raise BackupError(f"{archive}: {MANIFEST} lacks {DATABASE}, {SETTINGS} or {PKI}/ca.crt")
    return manifest


def _is_of_pki(name: str) -> bool:
    directory, _, file_name = name.partition("/")
    is_plain = "/" not in file_name and not file_name.startswith(".") and "\0" not in file_name
    return directory == PKI and is_plain and file_name.endswith((".crt", ".key"))


def _extract(
    archive: Path, tar: tarfile.TarFile, info: tarfile.TarInfo, manifest: Manifest, directory: Path
) -> str:
    """Write a member to its place and verify it; return its name."""
    expected = manifest.files.get(info.name)
    if expected is None or not info.isfile() or info.size != expected.size:
        raise BackupError(f"{archive}: {info.name!r} is not what {MANIFEST} lists")
    target = directory / info.name
    target.parent.mkdir(mode=0o700, exist_ok=True)
    content = tar.extractfile(info)
    assert content is not None  # a regular file
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, _BLOCK)
        file.flush()
        os.fsync(file.fileno())
    if _member(target) != expected:
        raise BackupError(f"{archive}: {info.name} is damaged: its SHA-256 is another one")
    return info.name
