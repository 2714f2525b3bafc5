"""Archives of root file systems as images."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from moorage.cluster.images.catalogue import Directory, File, write_layer
from moorage.cluster.images.rootfs import RootfsError, read_rootfs, write_image
from moorage.engine.images.archive import read_archive
from moorage.engine.images.manifest import Platform as MachinePlatform
from moorage.linux.program import Platform

ROOT = write_layer(
    {"bin/sh": File(b"shell", 0o755), "etc/passwd": File(b"root:x:0:0::/:/bin/sh\n")}
)


# As far as its last entry goes, without the zero blocks that follow.
UNENDED = ROOT[: -(-len(ROOT.rstrip(b"\0")) // 512) * 512]


def _sum(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _packed(kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(ROOT)
    if kind == "zstd":
        if shutil.which("zstd") is None:
            pytest.skip("zstd is not installed")
        done = subprocess.run(["zstd", "-q", "-c"], input=ROOT, capture_output=True, check=True)
        return done.stdout
    return ROOT


@pytest.mark.parametrize("kind", ["", "gzip", "zstd"])
def test_an_archive_becomes_an_image_that_the_engine_reads(tmp_path: Path, kind: str) -> None:
    content = _packed(kind)
    (tmp_path / "root").write_bytes(content)
    layer = read_rootfs(tmp_path / "root")
    assert (layer.compression, layer.digest, layer.diff_id) == (kind, _sum(content), _sum(ROOT))
    target = tmp_path / "image.tar"
    write_image(target, "moorage.local/root:1", Platform("amd64"), layer)
    (image,) = read_archive(target, tmp_path, MachinePlatform("amd64"))
    assert image.tags == ("moorage.local/root:1",)
    assert image.layers == (layer.diff_id,)
    (blob,) = image.blobs
    assert (blob.digest, blob.compression, blob.length) == (layer.digest, kind, len(content))
    configuration = json.loads(image.configuration)
    assert configuration["config"]["Cmd"] == ["/bin/sh"]
    (path,) = configuration["config"]["Env"]
    assert path.startswith("PATH=/usr/local/sbin:")
    assert configuration["architecture"] == "amd64"


def test_a_root_without_a_shell_starts_nothing_by_itself(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(write_layer({"app": File(b"x", 0o755)}))
    layer = read_rootfs(tmp_path / "root")
    write_image(tmp_path / "image.tar", "r/a:1", Platform("amd64"), layer)
    (image,) = read_archive(tmp_path / "image.tar", tmp_path, MachinePlatform("amd64"))
    assert "Cmd" not in json.loads(image.configuration)["config"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"root:x:0:0", "is not a tar archive"),
        (b"", "is not a tar archive"),
        (ROOT[:700], "is not a tar archive"),
        (gzip.compress(ROOT)[:-20], "is not a tar archive"),
        (b"\xfd7zXZ\x00" + b"x" * 100, "is packed with xz"),
        (b"BZh91AY" + b"x" * 100, "is packed with bzip2"),
        (UNENDED, "truncated: the zero blocks at its end are missing"),
        (ROOT + b"x" * 512, "truncated: the zero blocks at its end are missing"),
        (bytes(10240), "holds no files"),
        (write_layer({"oci-layout": File(b"{}"), "index.json": File(b"{}")}), "moor image load"),
    ],
    ids=[
        "text",
        "empty",
        "cut",
        "cut gzip",
        "xz",
        "bzip2",
        "no end",
        "more after the end",
        "no files",
        "an image",
    ],
)
def test_invalid_root_file_system_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "root").write_bytes(content)
    with pytest.raises(RootfsError, match=message):
        read_rootfs(tmp_path / "root")


def test_names_with_a_leading_slash_or_dot_count_alike(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "root", "w") as archive:
        for name in ("./usr", "./usr/bin", "/usr/bin/sh"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert read_rootfs(tmp_path / "root").has_shell


@pytest.mark.parametrize("shell", ["bin/sh", "usr/bin/sh"])
def test_a_root_with_a_shell_may_hold_files_of_an_image_too(tmp_path: Path, shell: str) -> None:
    (tmp_path / "root").write_bytes(write_layer({"manifest.json": File(b"{}"), shell: File(b"x")}))
    assert read_rootfs(tmp_path / "root").has_shell


@pytest.mark.parametrize("name", ["index.json", "manifest.json", "oci-layout"])
def test_an_archive_of_an_image_is_no_root_file_system(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").write_bytes(write_layer({name: File(b"{}"), "blobs/sha256/1": File(b"")}))
    with pytest.raises(RootfsError, match="is an image already; `moor image load` loads it"):
        read_rootfs(tmp_path / "root")


def test_files_without_entries_of_their_directories_are_a_root_file_system(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "root", "w") as archive:
        for name in ("srv/app", "xbin/sh", "./opt/bin/sh"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert not read_rootfs(tmp_path / "root").has_shell


def test_a_directory_alone_is_a_root_file_system(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(write_layer({"srv": Directory()}))
    assert not read_rootfs(tmp_path / "root").has_shell
