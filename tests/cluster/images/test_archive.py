from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from typing import Any

import pytest

from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.catalogue import File, write_layer
from moorage.engine.image_layout import digest
from moorage.linux.program import Platform

BASE = write_layer({"bin/sh": File(b"shell", 0o755)})
EXTRA = write_layer({"etc/motd": File(b"hello")})
ONE = Image(name="moorage.local/one:1", platform=Platform("arm64", "v8"), layers=(BASE,))
TWO = Image(
    name="moorage.local/two:1",
    platform=Platform("amd64"),
    layers=(BASE, EXTRA),
    entrypoint=("/bin/sh",),
    command=("-c", "true"),
    environment={"PATH": "/bin"},
    ports=("80/tcp",),
    stop_signal="SIGQUIT",
    description="two layers",
)


def files(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]


def blob(contents: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob a descriptor names, which must be as long as it says."""
    content = contents["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(content) == descriptor["size"]
    return content


def test_every_blob_is_named_by_its_digest_and_there_once() -> None:
    contents = files(write_archive((ONE, TWO)))
    names = [name for name in contents if name.startswith("blobs/")]
    for name in names:
        assert hashlib.sha256(contents[name]).hexdigest() == name.rpartition("/")[2]
    # Two manifests, two configurations, and the shared layer beside the other.
    assert len(names) == 6
    assert json.loads(contents["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


def test_the_index_leads_to_each_image() -> None:
    contents = files(write_archive((ONE, TWO)))
    index = json.loads(contents["index.json"])
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    for image, descriptor in zip((ONE, TWO), index["manifests"], strict=True):
        assert set(descriptor["annotations"].values()) == {image.name}
        assert descriptor["platform"]["architecture"] == image.platform.architecture
        manifest = json.loads(blob(contents, descriptor))
        configuration = blob(contents, manifest["config"])
        assert digest(configuration) == image.id
        assert tuple(blob(contents, layer) for layer in manifest["layers"]) == image.layers
        image_config = json.loads(configuration)
        assert image_config["rootfs"]["diff_ids"] == [digest(layer) for layer in image.layers]


def test_the_configuration_says_how_the_image_is_started() -> None:
    # A copy: an image computes its configuration once.
    assert json.loads(replace(TWO).configuration) == {
        "created": "1970-01-01T00:00:00Z",
        "os": "linux",
        "architecture": "amd64",
        "config": {
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", "true"],
            "Env": ["PATH=/bin"],
            "ExposedPorts": {"80/tcp": {}},
            "StopSignal": "SIGQUIT",
            "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.description": "two layers"},
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(BASE), digest(EXTRA)]},
    }
    assert json.loads(replace(ONE).configuration) == {
        "created": "1970-01-01T00:00:00Z",
        "os": "linux",
        "architecture": "arm64",
        "variant": "v8",
        "config": {
            "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.description": ""},
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(BASE)]},
    }


def test_the_same_images_give_the_same_bytes() -> None:
    assert write_archive((ONE, TWO)) == write_archive((ONE, TWO))
    assert Image(name="other:1", platform=ONE.platform, layers=(BASE,)).id == ONE.id


def test_two_images_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two images have the name moorage\.local/one:1"):
        write_archive((ONE, ONE))


def test_no_images_give_an_archive_all_the_same() -> None:
    assert json.loads(files(write_archive(()))["index.json"])["manifests"] == []
