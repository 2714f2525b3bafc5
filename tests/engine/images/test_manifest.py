from __future__ import annotations

import json
import platform as machine
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.images.image import MalformedImageError
from moorage.engine.images.manifest import Index, Manifest, Platform, pick, read_manifest

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
ARM = Platform("arm64", ("v8", ""))


def listed(*platforms: tuple[str, str, str]) -> Index:
    entries = [
        {"digest": digest, "size": 1,
         "platform": {"os": system, "architecture": architecture, "variant": variant}}
        for digest, (system, architecture, variant) in zip((A, B, C), platforms, strict=False)
    ]  # fmt: skip
    index = read_manifest(json.dumps({"schemaVersion": 2, "manifests": entries}).encode())
    assert isinstance(index, Index)
    return index


@pytest.mark.parametrize(
    ("platforms", "wanted"),
    [
        ([("linux", "amd64", ""), ("linux", "arm64", "v8")], B),
        ([("linux", "arm64", ""), ("linux", "arm64", "v8")], B),
        ([("linux", "arm64", "")], A),
        ([("windows", "arm64", "v8"), ("linux", "arm64", "")], B),
        ([("linux", "arm64", "v8"), ("linux", "arm64", "v8")], A),
    ],
)
def test_the_entry_for_this_machine_is_picked(
    platforms: list[tuple[str, str, str]], wanted: str
) -> None:
    assert pick(listed(*platforms), ARM).digest == wanted


@pytest.mark.parametrize(
    ("spelled", "system", "is_match"),
    [
        ("wasi/wasm", "wasip1", True),
        ("wasi/wasm", "wasi", True),
        ("wasip1/wasm", "wasip1", True),
        ("wasip2/wasm", "wasip1", False),
        ("linux/wasm", "wasip1", False),
    ],
)
def test_the_system_interface_of_webassembly_has_several_names(
    spelled: str, system: str, is_match: bool
) -> None:
    index = listed(("linux", "amd64", ""), (system, "wasm", ""))
    if is_match:
        assert pick(index, Platform.parse(spelled)).digest == B
        return
    with pytest.raises(MalformedImageError, match=f"manifest: {spelled} not in linux/amd64, "):
        pick(index, Platform.parse(spelled))


def test_index_without_this_platform_is_rejected() -> None:
    with pytest.raises(MalformedImageError, match="linux/arm64 not in linux/amd64, windows/arm64"):
        pick(listed(("linux", "amd64", ""), ("windows", "arm64", "")), ARM)


def test_entries_without_a_platform_are_never_picked() -> None:
    # As image builders append attestations.
    bare = {"digest": C, "size": 1}
    arm = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    for entries, result in (([bare, {"digest": A, "size": 1, "platform": arm}], A), ([bare], None)):
        index = read_manifest(json.dumps({"schemaVersion": 2, "manifests": entries}).encode())
        assert isinstance(index, Index)
        if result is not None:
            assert pick(index, ARM).digest == result
            continue
        with pytest.raises(MalformedImageError, match=r"manifest: linux/arm64 not in $"):
            pick(index, ARM)


@pytest.mark.parametrize(
    ("kind", "compression"),
    [
        ("application/vnd.oci.image.layer.v1.tar", ""),
        ("application/vnd.oci.image.layer.v1.tar+gzip", "gzip"),
        ("application/vnd.oci.image.layer.v1.tar+zstd", "zstd"),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", "gzip"),
        ("application/vnd.docker.image.rootfs.diff.tar", ""),
        ("application/octet-stream", "application/octet-stream"),
    ],
)
def test_a_layers_packing_is_in_its_media_type(kind: str, compression: str) -> None:
    result = read_manifest(manifest({"digest": A, "size": 1, "mediaType": kind}))
    assert isinstance(result, Manifest)
    assert result.layers[0].compression == compression


def manifest(layer: object, **more: object) -> bytes:
    return json.dumps(
        {"schemaVersion": 2, "config": {"digest": B, "size": 1}, "layers": [layer], **more}
    ).encode()


FOREIGN = "application/vnd.oci.image.layer.nondistributable.v1.tar"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read"),
        (b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}", "cannot be read"),
        (b"{}", "cannot be read"),
        (b'{"schemaVersion": 1}', "schema 1"),
        (manifest({"digest": "sha256:/etc/passwd", "size": 1}), "not a sha256 digest"),
        (manifest({"digest": A, "size": -1}), "negative"),
        (manifest({"digest": A, "size": 1, "mediaType": FOREIGN}), "not in the registry"),
    ],
)
def test_invalid_manifest_is_rejected(content: bytes, why: str) -> None:
    with pytest.raises(MalformedImageError, match=why):
        read_manifest(content)


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), lambda children:
       st.lists(children) | st.dictionaries(st.sampled_from(
           ["schemaVersion", "manifests", "config", "layers", "digest", "size", "mediaType"]),
           children)).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_are_read_or_rejected(content: bytes) -> None:
    try:
        read_manifest(content)
    except MalformedImageError:
        return


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("x86_64", Platform("amd64")),
        ("aarch64", Platform("arm64", ("v8", ""))),
        ("armv7l", Platform("arm", ("v7", "v6", ""))),
        ("armv6l", Platform("arm", ("v6", ""))),
        ("i686", Platform("386")),
        ("riscv64", Platform("riscv64")),
        ("ppc64le", Platform("ppc64le")),
        ("s390x", Platform("s390x")),
        ("loongarch64", Platform("loong64")),
        ("sparc64", Platform("sparc64")),
    ],
)
def test_images_are_for_the_architecture_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, name: str, platform: Platform
) -> None:
    monkeypatch.setattr(machine, "machine", lambda: name)
    assert Platform.of_this_machine() == platform


def test_a_manifest_may_be_as_large_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    content = manifest({"digest": A, "size": 0})
    module = "moorage.engine.images.manifest.DOCUMENT_LIMIT_BYTES"
    monkeypatch.setattr(module, len(content))
    assert isinstance(read_manifest(content), Manifest)
    with pytest.raises(MalformedImageError, match=f"larger than {len(content)} bytes"):
        read_manifest(content + b" ")


def test_a_manifest_of_docker_schema_1_is_known_by_its_media_type() -> None:
    kind = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    with pytest.raises(MalformedImageError, match="schema 1"):
        read_manifest(manifest({"digest": A, "size": 0}, mediaType=kind))


@pytest.mark.parametrize("word", ["nondistributable", "foreign"])
def test_layers_outside_the_registry_are_refused(word: str) -> None:
    layer = {"digest": A, "size": 1, "mediaType": f"application/x.{word}.tar"}
    with pytest.raises(MalformedImageError, match=f"{A} is not in the registry"):
        read_manifest(manifest(layer))


@pytest.mark.parametrize(
    ("config_kind", "layer_kinds", "is_artifact"),
    [
        ("application/vnd.wasm.config.v0+json", ["application/wasm"], True),
        ("application/vnd.wasm.config.v0+json", [], True),
        ("application/vnd.oci.empty.v1+json", ["application/vnd.wasm.content.layer.v1+wasm"], True),
        ("application/vnd.oci.image.config.v1+json", ["x.tar", "application/wasm"], True),
        ("application/vnd.oci.image.config.v1+json", ["application/x.tar+gzip"], False),
    ],
)
def test_an_artifact_is_known_by_its_configuration_or_its_modules(
    config_kind: str, layer_kinds: Sequence[str], is_artifact: bool
) -> None:
    config = {"digest": A, "size": 1, "mediaType": config_kind}
    layers = [{"digest": B, "size": 1, "mediaType": kind} for kind in layer_kinds]
    manifest = {"schemaVersion": 2, "config": config, "layers": layers}
    read = read_manifest(json.dumps(manifest).encode())
    assert isinstance(read, Manifest)
    assert read.has_modules is is_artifact
    assert [layer.compression for layer in read.layers if layer.is_module] == [
        "" for kind in layer_kinds if "wasm" in kind
    ]
