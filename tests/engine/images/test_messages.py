"""CRI messages of images, compared whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.engine.images.image import Image, ImageConfiguration
from moorage.engine.images.service import image_message, usage_message, verbose_info
from moorage.engine.images.usage import FilesystemUsage
from moorage.wire.cri import pb


def image(user: str, *, is_pinned: bool = False) -> Image:
    return Image(
        id="sha256:1",
        tags=("a:1", "a:2"),
        digests=("a@sha256:2",),
        layers=("sha256:3",),
        size_bytes=7,
        configuration=ImageConfiguration(user=user),
        is_pinned=is_pinned,
    )


@pytest.mark.parametrize(
    ("user", "username", "uid"),
    [("web:1", "web", None), ("1000:1", "", 1000), ("0", "", 0), ("", "", None)],
)
@pytest.mark.parametrize("is_pinned", [False, True])
def test_an_image_in_a_list(user: str, username: str, uid: int | None, is_pinned: bool) -> None:
    assert image_message(image(user, is_pinned=is_pinned)) == pb.Image(
        id="sha256:1",
        repo_tags=["a:1", "a:2"],
        repo_digests=["a@sha256:2"],
        size=7,
        username=username,
        uid=None if uid is None else pb.Int64Value(value=uid),
        pinned=is_pinned,
    )


def test_usage_of_a_file_system() -> None:
    assert usage_message(FilesystemUsage(5, Path("/data"), 6, 7)) == pb.FilesystemUsage(
        timestamp=5,
        fs_id=pb.FilesystemIdentifier(mountpoint="/data"),
        used_bytes=pb.UInt64Value(value=6),
        inodes_used=pb.UInt64Value(value=7),
    )


def test_verbose_info_has_the_configuration_and_the_layers() -> None:
    info = verbose_info(image(""), b'{"config": {"User": "web"}}')
    assert info.keys() == {"info"}
    assert json.loads(info["info"]) == {
        "imageSpec": {"config": {"User": "web"}},
        "layers": ["sha256:3"],
    }
