"""What a registry offers, judged before anything is fetched, and what it delivered: no registry."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.engine.errors import ExhaustedError, FailedError
from moorage.engine.images.manifest import OCI_MANIFEST, ImageLimits, Platform, digest_of
from moorage.engine.images.pulling import Puller, blob_file
from moorage.engine.images.rootfs import failure, remove_home
from moorage.linux.idmap import IdmapUnsupportedError
from moorage.wire.cri.reference import parse

NAME = parse("r.example/app:1")
PLATFORM = Platform("amd64")
LAYERS = [digest_of(b"one"), digest_of(b"two")]
INDEX = "application/vnd.oci.image.index.v1+json"


def configuration(*layers: str) -> bytes:
    root = {"type": "layers", "diff_ids": list(layers)}
    return json.dumps({"architecture": "amd64", "os": "linux", "rootfs": root}).encode()


def manifest(config: bytes, *sizes: int, media_type: str = OCI_MANIFEST) -> bytes:
    kind = "application/vnd.oci.image.layer.v1.tar+gzip"
    layers = [
        {"mediaType": kind, "digest": digest_of(f"blob {n}".encode()), "size": size}
        for n, size in enumerate(sizes)
    ]
    about = {"mediaType": "c", "digest": digest_of(config), "size": len(config)}
    return json.dumps(
        {"schemaVersion": 2, "mediaType": media_type, "config": about, "layers": layers}
    ).encode()


def index(content: bytes) -> bytes:
    platform = {"architecture": "amd64", "os": "linux"}
    entry = {"mediaType": OCI_MANIFEST, "digest": digest_of(content), "size": 1,
             "platform": platform}  # fmt: skip
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()


class Skopeo:
    """Serves what a test gives it, and delivers some blobs."""

    def __init__(self) -> None:
        self.manifests: list[bytes] = []
        self.config = b""
        self.asked: list[tuple[Any, ...]] = []
        self.delivers = True

    async def manifest(self, *asked: Any) -> bytes:
        self.asked.append(("manifest", asked[0].full, *asked[1:]))
        return self.manifests.pop(0)

    async def configuration(self, *asked: Any) -> bytes:
        self.asked.append(("configuration", asked[0].full, *asked[1:]))
        return self.config

    async def copy(
        self, exact: Any, auth: Any, directory: Path, *_: Any, is_oci: bool, size_bytes: int
    ) -> None:
        self.asked.append(("copy", exact.full, auth, is_oci, size_bytes))
        for n in range(2) if self.delivers else ():
            digest = digest_of(f"blob {n}".encode()).removeprefix("sha256:")
            file = directory / "blobs/sha256" / digest
            if not file.exists():
                file.write_text(f"blob {n}")


@pytest.fixture
def skopeo() -> Skopeo:
    return Skopeo()


def puller(skopeo: Any, **limits: int) -> Puller:
    return Puller(skopeo, PLATFORM, ImageLimits(**limits))


async def offered(skopeo: Skopeo, *sizes: int, **limits: int) -> Any:
    skopeo.config = configuration(*LAYERS)
    content = manifest(skopeo.config, *sizes)
    return await puller(skopeo, **limits).offer(NAME, None, digest_of(content), content)


async def test_an_image_is_offered_by_its_digest(skopeo: Skopeo) -> None:
    offer = await offered(skopeo, 5, 7)
    assert (offer.requested, offer.layers) == (NAME, tuple(LAYERS))
    assert offer.exact.full == f"r.example/app@{offer.digest}"
    assert offer.configuration == skopeo.config
    assert skopeo.asked == [("configuration", offer.exact.full, None, NAME.full)]


async def test_of_a_list_the_machines_image_is_offered(skopeo: Skopeo) -> None:
    skopeo.config = configuration(*LAYERS)
    image = manifest(skopeo.config, 5, 7)
    content = index(image)
    skopeo.manifests = [content, image]
    auth = Path("/auth")
    digest, served = await puller(skopeo).digest(NAME, auth)
    offer = await puller(skopeo).offer(NAME, auth, digest, served)
    assert (offer.digest, digest) == (digest_of(content), digest_of(content))
    exact = f"r.example/app@{digest_of(image)}"
    assert offer.exact.full == exact
    assert skopeo.asked == [
        ("manifest", NAME.full, auth, NAME.full), ("manifest", exact, auth, NAME.full),
        ("configuration", exact, auth, NAME.full),
    ]  # fmt: skip


async def test_an_image_of_too_many_layers_is_refused_before_anything_is_fetched(
    skopeo: Skopeo,
) -> None:
    with pytest.raises(FailedError, match=r"it has 4 layers, more than 3; merge some of them"):
        await offered(skopeo, 1, 2, 3, 4, layers=3)
    assert skopeo.asked == []


async def test_what_is_not_what_was_asked_for_is_refused(skopeo: Skopeo) -> None:
    exact = parse(f"r.example/app@{digest_of(b'other')}")
    skopeo.manifests = [b"served"]
    message = f"the registry served {digest_of(b'served')} instead of {digest_of(b'other')}"
    with pytest.raises(FailedError, match=f'failed to pull image "{exact.full}": {message}'):
        await puller(skopeo).digest(exact, None)
    skopeo.config = configuration(*LAYERS)
    image = manifest(skopeo.config, 5, 7)
    skopeo.manifests = [image + b" "]
    with pytest.raises(FailedError, match="the registry served"):
        await puller(skopeo).offer(NAME, None, digest_of(b""), index(image))


@pytest.mark.parametrize(
    ("content", "config", "why"),
    [
        (manifest(configuration(*LAYERS), 1, 2), b"{}", "configuration sha256:.* is corrupt"),
        (manifest(configuration(*LAYERS), 1), configuration(*LAYERS), "2 layers, its manifest 1"),
        (b"{", b"", "cannot be read"),
    ],
)
async def test_what_does_not_fit_together_is_refused(
    skopeo: Skopeo, content: bytes, config: bytes, why: str
) -> None:
    skopeo.config = config
    with pytest.raises(FailedError, match=f'failed to pull image "r.example/app:1": .*{why}'):
        await puller(skopeo).offer(NAME, None, digest_of(content), content)


async def test_a_list_of_lists_is_refused(skopeo: Skopeo) -> None:
    inner = index(b"x")
    skopeo.manifests = [inner]
    with pytest.raises(FailedError, match="its index refers to another index"):
        await puller(skopeo).offer(NAME, None, digest_of(b""), index(inner))


async def test_layers_that_are_there_are_stood_for(skopeo: Skopeo, tmp_path: Path) -> None:
    offer = await offered(skopeo, 5, 7)
    await puller(skopeo).fetch(offer, None, {LAYERS[0]}, tmp_path)
    files = [blob_file(tmp_path, layer) for layer in offer.manifest.layers]
    assert [file.read_bytes() for file in files] == [b"\0" * 5, b"blob 1"]
    assert skopeo.asked[-1] == ("copy", offer.exact.full, None, True, 12)
    assert [(diff_id, blob.path, blob.compression) for diff_id, blob in offer.blobs(tmp_path)] == [
        (LAYERS[0], files[0], "gzip"), (LAYERS[1], files[1], "gzip")
    ]  # fmt: skip
    docker = replace(offer, manifest=offer.manifest.__class__(
        offer.manifest.config, offer.manifest.layers, "docker"))  # fmt: skip
    (tmp_path / "again").mkdir()
    await puller(skopeo).fetch(docker, None, set(), tmp_path / "again")
    assert skopeo.asked[-1][-2] is False


async def test_a_layer_that_was_not_delivered_is_named(skopeo: Skopeo, tmp_path: Path) -> None:
    offer = await offered(skopeo, 5, 7)
    skopeo.delivers = False
    digest = offer.manifest.layers[1].digest
    with pytest.raises(FailedError, match=f"layer {digest} was not delivered"):
        await puller(skopeo).fetch(offer, None, {LAYERS[0]}, tmp_path)


@pytest.mark.parametrize(
    ("limits", "free", "error", "why"),
    [
        ({"unpacked_bytes": 12, "free_bytes": 0}, 12, None, ""),
        ({"unpacked_bytes": 11, "free_bytes": 0}, 12, FailedError, "more than 11"),
        ({"unpacked_bytes": 12, "free_bytes": 0}, 11, ExhaustedError, "no space left on device"),
        ({"unpacked_bytes": 12, "free_bytes": 1}, 12, ExhaustedError, "no space left on device"),
        ({"unpacked_bytes": 12, "free_bytes": 9}, 3, ExhaustedError, "and 0 .* are available"),
    ],
)
async def test_what_would_not_fit_is_refused_before_it_is_fetched(
    skopeo: Skopeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int],
    free: int, error: type[Exception] | None, why: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    offer = await offered(skopeo, 5, 7)
    pulled = puller(skopeo, **limits)
    if error is None:
        await pulled.fetch(offer, None, set(), tmp_path)
        return
    with pytest.raises(error, match=why):
        await pulled.fetch(offer, None, set(), tmp_path)
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
    # What is there already needs no room.
    pulled._check_size(offer, set(LAYERS), tmp_path)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OSError(errno.ENOSPC, "full", "/a"), ExhaustedError, "x: full (/a); free disk space"),
        (OSError(errno.EDQUOT, "quota"), ExhaustedError, "x: quota; free disk space"),
        (OSError(errno.EIO, "broken", b"/b"), FailedError, "x: broken (/b)"),
        (OSError("odd"), FailedError, "x: odd"),
        (
            IdmapUnsupportedError(errno.EINVAL, "none", "/a"),
            FailedError,
            "x: none (/a); run the pod without a user namespace",
        ),
    ],
)
def test_file_system_errors_say_what_to_do(
    error: OSError, kind: type[Exception], text: str
) -> None:
    refusal = failure("x", error)
    assert type(refusal) is kind
    assert text in str(refusal)
    if kind is FailedError and "run the pod" not in text:
        assert "run the pod" not in str(refusal)


def test_a_directory_goes_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "home/in").mkdir(parents=True)
    remove_home(tmp_path / "home")
    remove_home(tmp_path / "home")
    assert list(tmp_path.iterdir()) == []
