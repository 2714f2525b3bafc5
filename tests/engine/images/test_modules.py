"""WebAssembly artifacts: their files and configuration, and what of them is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.errors import FailedError, NotFoundError
from moorage.engine.images.image import MalformedImageError, read_configuration
from moorage.engine.images.manifest import Descriptor, ImageLimits, Manifest, Platform
from moorage.engine.images.modules import file_of, module_image
from moorage.engine.images.store import ImagePaths, ImageStore
from tests.engine.images.builds import (
    HERE,
    MODULE,
    TITLE,
    WASM_CONFIG,
    WASM_LAYER,
    Entry,
    artifact_archive,
    digest,
    layer,
    oci_archive,
)
from tests.engine.images.conftest import Registry

WASI = Platform.parse("wasi/wasm")
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
CONTENT_LAYER = "application/vnd.wasm.content.layer.v1+wasm"
EMPTY = "application/vnd.oci.empty.v1+json"


def module(title: str = "", content: bytes = MODULE, kind: str = WASM_LAYER) -> Descriptor:
    annotations = {TITLE: title} if title else None
    return Descriptor(digest(content), len(content), kind, annotations=annotations)


def artifact(*layers: Descriptor) -> Manifest:
    return Manifest(Descriptor(digest(b"{}"), 2, WASM_CONFIG), layers)


def read(
    settings: Mapping[str, Any], *layers: Descriptor, platform: Platform = WASI
) -> tuple[dict[str, Any], tuple[str, ...], str]:
    content, diff_ids, chosen = module_image(
        artifact(*layers), json.dumps(settings).encode(), platform
    )
    return json.loads(content), diff_ids, chosen


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("app.wasm", "app.wasm"),
        ("ünï código.wasm", "ünï código.wasm"),
        ("...", "..."),
        ("n" * 255, "n" * 255),
        *(
            (title, "main.wasm")
            for title in (
                "", ".", "..", "/", "../x", "a/b.wasm", "/etc/passwd", "a\0b", "a\nb", ".wh.x",
                ".wh..wh..opq", "n" * 256, "ü" * 128, "n" * 10_240,
            )
        ),
    ],
)  # fmt: skip
def test_a_title_names_the_file_only_if_it_is_one_plain_name(title: str, name: str) -> None:
    assert file_of(module(title)) == name


def test_an_archive_of_files_is_no_single_file() -> None:
    assert file_of(module("x", kind="application/vnd.oci.image.layer.v1.tar+gzip")) == ""


def test_the_first_module_is_the_entrypoint_and_the_rest_of_a_configuration_stays() -> None:
    process = {"Env": ["A=b"], "Cmd": ["x"], "Entrypoint": ["/old"], "User": "7"}
    settings = {"os": "wasip1", "config": process, "rootfs": {"diff_ids": []}}
    document, diff_ids, platform = read(settings, module("a.wasm"), module("b.wasm", b"2"))
    assert document["config"] == process | {"Entrypoint": ["/a.wasm"]}
    assert (document["os"], document["architecture"], platform) == ("wasip1", "wasm", "wasip1/wasm")
    configuration, layers = read_configuration(json.dumps(document).encode())
    assert configuration.entrypoint == ("/a.wasm",)
    assert layers == diff_ids
    assert len(set(diff_ids)) == 2


def test_a_layer_is_known_by_its_bytes_and_its_name() -> None:
    (_, one, _), (_, two, _), (_, other, _) = (
        read({}, module("a")), read({}, module("b")), read({}, module("a", b"2")),
    )  # fmt: skip
    assert len({one, two, other, (digest(MODULE),)}) == 4


@pytest.mark.parametrize(
    ("system", "handler", "platform"),
    [
        ("", "wasi/wasm", "wasip1/wasm"),
        ("wasip2", "wasi/wasm", "wasip2/wasm"),
        ("wasi", "wasip1/wasm", "wasi/wasm"),
        ("linux", "wasip2/wasm", "wasip2/wasm"),
    ],
)
def test_the_platform_is_the_artifacts_own_or_the_handlers_first(
    system: str, handler: str, platform: str
) -> None:
    assert read({"os": system}, module(), platform=Platform.parse(handler))[2] == platform


@pytest.mark.parametrize(
    ("settings", "layers", "platform", "why"),
    [
        ({}, [module()], f"linux/{HERE}", f"a handler for linux/{HERE} does not run; .*`platform"),
        ({"os": "wasip2"}, [module()], "wasip1/wasm", "for wasip2, .* for wasip1, wasi"),
        ({}, [], "wasi/wasm", "without a module"),
        ({}, [module(), module("../x", b"2")], "wasi/wasm", "two of its modules are named main"),
        (
            {},
            [module(), module("", b"2", "text/plain")],
            "wasi/wasm",
            "a layer of text/plain beside",
        ),
        ({}, [module("", b"2", ""), module()], "wasi/wasm", "a layer of no media type beside"),
        ({"os": 7}, [module()], "wasi/wasm", "its configuration cannot be read"),
        ([], [module()], "wasi/wasm", "its configuration cannot be read"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    settings: Mapping[str, Any], layers: Sequence[Descriptor], platform: str, why: str
) -> None:
    with pytest.raises(MalformedImageError, match=why):
        read(settings, *layers, platform=Platform.parse(platform))


@pytest.mark.parametrize("deep", [b"[" * 100_000, b"\xff", b'{"config": {"Env": 7}}'])
def test_hostile_configurations_are_refused(deep: bytes) -> None:
    with pytest.raises(MalformedImageError, match="cannot be read"):
        read_configuration(module_image(artifact(module()), deep, WASI)[0])


# In a store.


@pytest.mark.parametrize(
    ("kind", "layer_kind"),
    [(WASM_CONFIG, WASM_LAYER), (EMPTY, CONTENT_LAYER), (OCI_CONFIG, WASM_LAYER)],
)
async def test_a_pulled_artifact_is_a_root_file_system_with_the_module(
    images: ImageStore, registry: Registry, place: Path, kind: str, layer_kind: str
) -> None:
    archive = artifact_archive(
        place / "a.tar", "localhost/a:1", [(MODULE, "app.wasm")], kind=kind, layer_kind=layer_kind
    )
    name = registry.push(archive, f"module-{len(layer_kind)}-{len(kind)}:1")
    with pytest.raises(FailedError, match=f"WebAssembly module, which a handler for linux/{HERE}"):
        await images.pull(name)
    image = await images.pull(name, platform="wasi/wasm")
    assert image.configuration.entrypoint == ("/app.wasm",)
    root = place / "root"
    await images.mount_rootfs("c1", image, root)
    assert [path.name for path in root.iterdir()] == ["app.wasm"]
    assert (root / "app.wasm").read_bytes() == MODULE
    assert (root / "app.wasm").stat().st_mode & 0o777 == 0o755
    assert images.find_for(name, "wasi/wasm") == image
    assert images.find_for(name, "wasip1/wasm") == image
    with pytest.raises(NotFoundError):
        images.find_for(name, "")
    assert (await images.pull(image.digests[0], platform="wasi/wasm")).id == image.id


async def test_a_loaded_artifact_is_for_handlers_of_its_platform(
    paths: ImagePaths, place: Path
) -> None:
    name = "localhost/component:1"
    archive = artifact_archive(
        place / "a.tar", name, [(MODULE, "../../evil"), (b"second", "lib.wasm")], {"os": "wasip2"}
    )
    async with ImageStore(paths) as images:
        (image,) = await images.load(archive)
        assert await images.load_names(archive) == (name,)
    # The next engine reads the same.
    async with ImageStore(paths) as images:
        found = images.find_for(name, "wasi/wasm")
        assert (found, found.platform) == (image, "wasip2/wasm")
        with pytest.raises(NotFoundError):
            images.find_for(name, "wasip1/wasm")
        await images.mount_image(found, place / "root")
        files = {path.name: path.read_bytes() for path in (place / "root").iterdir()}
        assert files == {"main.wasm": MODULE, "lib.wasm": b"second"}
        saved = await images.save([name], place / "saved.tar")
        assert not saved[0].is_exact
        (again,) = await images.load(place / "saved.tar")
        assert again.configuration == image.configuration


async def test_the_same_bytes_may_be_an_archive_of_files_and_a_module(
    images: ImageStore, place: Path
) -> None:
    both = layer(Entry("inside", b"1"))
    archive = oci_archive(place / "a.tar", ["localhost/files:1"], [both])
    (files,) = await images.load(archive)
    (single,) = await images.load(artifact_archive(place / "b.tar", "localhost/m:1", [(both, "m")]))
    await images.mount_image(files, place / "files")
    await images.mount_image(single, place / "single")
    assert (place / "files/inside").read_bytes() == b"1"
    assert (place / "single/m").read_bytes() == both


async def test_a_module_that_does_not_match_its_digest_leaves_nothing(
    images: ImageStore, place: Path
) -> None:
    archive = artifact_archive(
        place / "a.tar", "localhost/a:1", [(MODULE, "m")], spoiled=b"12345678"
    )
    with pytest.raises(FailedError, match="the blob's digest is"):
        await images.load(archive)
    assert images.all() == ()
    assert list((place / "data/layers").iterdir()) == []


async def test_a_module_counts_to_the_limit_of_an_image(paths: ImagePaths, place: Path) -> None:
    archive = artifact_archive(place / "a.tar", "localhost/a:1", [(bytes(1 << 20), "m")])
    async with ImageStore(paths, limits=ImageLimits(unpacked_bytes=1 << 19)) as images:
        with pytest.raises(FailedError, match="engine's limit"):
            await images.load(archive)
        assert list((place / "data/layers").iterdir()) == []
