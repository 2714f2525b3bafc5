"""Pulls from a real registry by the real skopeo."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from moorage.engine.errors import FailedError, InvalidError, NotFoundError
from moorage.engine.images.service import ImageServicer
from moorage.engine.images.skopeo import Credentials
from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.wire.cri import pb
from tests.engine.images.builds import HERE, Entry, configuration, digest, layer, oci_archive
from tests.engine.images.conftest import Registry, serving
from tests.ports import free_port

BASE = layer(Entry("base", os.urandom(50_000)))


def pushed(
    registry: Registry, place: Path, name: str, *layers: bytes, more: tuple[str, ...] = ()
) -> str:
    process = {"User": "1000:5", "Cmd": [name]}
    archive = oci_archive(place / "pushed.tar", [f"localhost/{name}"], layers, process)
    return registry.push(archive, name, *more)


def manifest(name: str) -> bytes:
    """What the registry serves under a full name."""
    argv = ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{name}"]
    return subprocess.run(argv, check=True, capture_output=True).stdout


@pytest.mark.parametrize("form", ["oci", "v2s2"])
async def test_an_image_is_pulled_and_found_by_all_its_names(
    images: ImageStore, registry: Registry, place: Path, form: str
) -> None:
    name = pushed(registry, place, f"found/{form}:1", BASE, more=("--format", form))
    image = await images.pull(name)
    settings = configuration([BASE], {"User": "1000:5", "Cmd": [f"found/{form}:1"]})
    assert image.id == digest(settings)
    assert image.tags == (name,)
    repository = name.rpartition(":")[0]
    assert image.digests == (f"{repository}@{digest(manifest(name))}",)
    assert (image.uid, image.username) == (1000, "")
    assert image.size_bytes > 50_000
    bare = image.id.removeprefix("sha256:")
    for reference in (image.id, bare, bare[:12], image.digests[0], name, f"{name}@sha256:{bare}"):
        if "@" not in reference or reference in image.digests:
            assert images.find(reference) == image
    assert await images.configuration(image) == settings
    assert list((place / "data/ingest").iterdir()) == []
    assert sorted(path.name for path in (place / "run").iterdir()) == ["stages"]


async def test_what_is_there_is_not_fetched_again(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    bottom, top = layer(Entry("bottom", os.urandom(100))), layer(Entry("top", b"x"))
    first = await images.pull(pushed(registry, place, "shared/a:1", bottom))
    second_name = pushed(registry, place, "shared/b:1", bottom, top)
    registry.drop(json.loads(manifest(second_name))["layers"][0]["digest"])
    second = await images.pull(second_name)
    assert second.layers == (digest(bottom), digest(top))
    assert first.layers[0] == second.layers[0]
    assert len(list((place / "data/layers").iterdir())) == 2
    await images.remove(first.id)
    assert digest(bottom).removeprefix("sha256:") in os.listdir(place / "data/layers")
    await images.remove(second_name)
    assert os.listdir(place / "data/layers") == []
    await images.remove(second_name)


async def test_a_tag_moves_with_the_registry(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    old = await images.pull(pushed(registry, place, "moves:1", BASE))
    name = pushed(registry, place, "moves:1", layer(Entry("newer")))
    new = await images.pull(name)
    assert images.find(name).id == new.id
    assert images.find(old.id).tags == ()
    assert images.find(old.digests[0]).id == old.id


async def test_a_second_tag_is_another_name_of_the_image(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a"], [BASE])
    one, two = registry.push(archive, "twice:1"), registry.push(archive, "twice:2")
    await images.pull(one)
    image = await images.pull(two)
    assert image.tags == (one, two)
    by_digest = await images.pull(image.digests[0])
    assert by_digest == image
    await images.remove(one)
    assert images.all() == ()


async def test_the_list_of_platforms_names_the_image(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    entries = []
    platforms = (("linux", "fictional"), ("linux", HERE), ("wasip1", "wasm"))
    for number, (system, architecture) in enumerate(platforms):
        content = layer(Entry(architecture))
        archive = oci_archive(place / "a.tar", ["localhost/a"], [content])
        name = registry.push(archive, f"multi:{number}", "--format", "oci")
        raw = manifest(name)
        entries.append(
            {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest(raw),
                "size": len(raw),
                "platform": {"os": system, "architecture": architecture},
            }
        )
    index = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": entries,
        }
    )
    put = Request(
        f"http://{registry.address}/v2/multi/manifests/all",
        data=index.encode(),
        headers={"Content-Type": "application/vnd.oci.image.index.v1+json"},
        method="PUT",
    )
    with await asyncio.to_thread(urlopen, put) as reply:
        assert reply.status == 201
    image = await images.pull(f"{registry.address}/multi:all")
    assert image.digests == (f"{registry.address}/multi@{digest(index.encode())}",)
    assert image.layers == (digest(layer(Entry(HERE))),)
    wasm = await images.pull(f"{registry.address}/multi:all", platform="wasi/wasm")
    assert wasm.layers == (digest(layer(Entry("wasm"))),)
    # Both have the index's digest; each platform finds its own.
    for text, layers in ((f"linux/{HERE}", image.layers), ("wasi/wasm", wasm.layers)):
        assert images.find_for(image.digests[0], text).layers == layers
        assert (await images.pull(image.digests[0], platform=text)).layers == layers
    assert (await images.pull(f"{registry.address}/multi:all")).layers == image.layers
    with pytest.raises(NotFoundError):
        images.find_for(f"{registry.address}/multi:all", "wasi/wasm")
    assert images.find_for(wasm.id, "").layers == wasm.layers
    calls = ImageServicer(images, lambda: ("w", "runc"), {"w": "wasi/wasm", "runc": ""}.__getitem__)
    for handler, wanted in (("w", wasm), ("runc", image), ("", image)):
        spec = pb.ImageSpec(image=image.digests[0], runtime_handler=handler)
        status = await calls.image_status(pb.ImageStatusRequest(image=spec))
        assert status.image.id == wanted.id
    spec = pb.ImageSpec(image=f"{registry.address}/multi:all", runtime_handler="w")
    assert not (await calls.image_status(pb.ImageStatusRequest(image=spec))).HasField("image")
    offered = f"linux/{HERE}, linux/fictional, wasip1/wasm"
    with pytest.raises(FailedError) as raised:
        await images.pull(f"{registry.address}/multi:all", platform="linux/absent")
    assert f"{registry.address}/multi:all" in str(raised.value)
    assert f"linux/absent not in {offered}; build the image" in str(raised.value)


async def test_concurrent_requests_share_one_pull(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    name = pushed(registry, place, "together:1", BASE)
    other = pushed(registry, place, "together:2", BASE, layer(Entry("x")))
    pulled = await asyncio.gather(
        *(images.pull(reference) for reference in (name, name, name, other, other))
    )
    assert len({image.id for image in pulled}) == 2
    assert len(list((place / "data/layers").iterdir())) == 2


async def test_a_pull_taken_back_leaves_nothing(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    large = [layer(Entry(f"f{n}", os.urandom(3_000_000))) for n in range(4)]
    name = pushed(registry, place, "taken/back:1", *large)
    for pause_s in (0.0, 0.02, 0.05, 0.1, 0.2, 0.3):
        pull = asyncio.create_task(images.pull(name))
        await asyncio.wait((pull,), timeout=pause_s)
        pull.cancel()
        await asyncio.wait((pull,))
        # Taken back in the last moment, the image is there, and whole.
        whole = {
            digest.removeprefix("sha256:") for image in images.all() for digest in image.layers
        }
        assert set(os.listdir(place / "data/layers")) == whole
        assert len(whole) in (0, 4)
        assert os.listdir(place / "data/ingest") == []
        await images.remove(name)
    assert len((await images.pull(name)).layers) == 4


async def test_cancelled_request_does_not_end_the_shared_pull(
    images: ImageStore, registry: Registry, place: Path
) -> None:
    name = pushed(registry, place, "stays:1", layer(Entry("f", os.urandom(5_000_000))))
    leaving, staying = (asyncio.create_task(images.pull(name)) for _ in range(2))
    await asyncio.wait((leaving,), timeout=0.05)
    leaving.cancel()
    assert (await staying).tags == (name,)


async def test_failures_say_what_a_kubelet_looks_for(
    images: ImageStore, registry: Registry
) -> None:
    absent = f"{registry.address}/nothing:here"
    with pytest.raises(NotFoundError, match=f'failed to resolve reference "{absent}".*not found'):
        await images.pull(absent)
    with pytest.raises(FailedError, match=r"^RegistryUnavailable: "):
        await images.pull(f"127.0.0.1:{free_port()}/a:1")
    with pytest.raises(InvalidError, match="repository name must be lowercase"):
        await images.pull("Busybox")
    with pytest.raises(NotFoundError):
        images.find("nothing")


async def test_a_registry_that_says_nothing_is_given_up(paths: ImagePaths) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ImageStore(paths, stall_s=0.6) as images:
        with pytest.raises(
            FailedError, match=r"^RegistryUnavailable: .*no progress for 0\.6 seconds"
        ):
            await images.pull(f"127.0.0.1:{port}/a:1")
    assert os.listdir(paths.data / "ingest") == []


async def test_without_skopeo_the_error_says_what_to_install(place: Path) -> None:
    paths = ImagePaths(place / "data", place / "run")
    async with ImageStore(paths, skopeo=place / "no-skopeo") as images:
        with pytest.raises(FailedError, match="install skopeo"):
            await images.pull("localhost:1/a")


async def test_a_mirror_is_asked_in_the_registrys_stead(registry: Registry, place: Path) -> None:
    pushed(registry, place, "library/mirrored:1", BASE)
    paths = ImagePaths(place / "data", place / "run")
    mirrors = {"docker.io": f"http://{registry.address}"}
    async with ImageStore(paths, mirrors=mirrors) as images:
        image = await images.pull("mirrored:1")
    assert image.tags == ("docker.io/library/mirrored:1",)


async def test_corrupt_blob_of_the_registry_is_rejected(
    images: ImageStore, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("spoilt")
    for registry in serving(directory):
        name = pushed(registry, place, "spoilt:1", BASE)
        for data in directory.rglob("data"):
            if data.stat().st_size > 10_000:
                data.write_bytes(data.read_bytes()[:-1] + b"?")
        with pytest.raises(FailedError, match="spoilt:1"):
            await images.pull(name)
    assert os.listdir(place / "data/layers") == []
    assert os.listdir(place / "data/ingest") == []


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that wants a name and a password."""
    directory = tmp_path_factory.mktemp("guarded")
    users = directory / "users"
    # Of the password s3cret, by bcrypt.
    users.write_text("me:$2b$04$xjO1BCOD9kKn0KGP31Sa2uK6KZY5JTqar/eAh6V3PYyZdZ3o508QW\n")
    yield from serving(directory, f"auth: {{htpasswd: {{realm: test, path: {users}}}}}\n")


async def test_credentials_open_a_guarded_registry(
    images: ImageStore, guarded: Registry, place: Path
) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a"], [BASE])
    name = guarded.push(archive, "mine:1", "--dest-creds", "me:s3cret")
    with pytest.raises(FailedError, match="pull access denied"):
        await images.pull(name)
    with pytest.raises(FailedError, match="pull access denied") as caught:
        await images.pull(name, Credentials("me", "wrong"))
    assert "wrong" not in str(caught.value)
    image = await images.pull(name, Credentials("me", "s3cret"))
    assert image.tags == (name,)
    assert not list((place / "run").glob("*.json"))


async def test_secrets_are_not_in_command_lines(place: Path) -> None:
    """Seen by a program in skopeo's place that notes how it was called."""
    spy = place / "skopeo"
    spy.write_text(
        f'#!/bin/sh\necho "$@" >> {place}/calls\nfor each; do case "$each" in *.auth.json) '
        f'cp -p "$each" {place}/auth;; esac; done\nexit 1\n'
    )
    spy.chmod(0o755)
    paths = ImagePaths(place / "data", place / "run")
    async with ImageStore(paths, skopeo=spy) as images:
        with pytest.raises(FailedError):
            await images.pull("localhost:1/a", Credentials("me", "s3cret"))
    assert "s3cret" not in (place / "calls").read_text()
    auth = place / "auth"
    assert auth.stat().st_mode & 0o777 == 0o600
    entry = json.loads(auth.read_text())["auths"]["localhost:1"]
    assert base64.b64decode(entry["auth"]) == b"me:s3cret"


async def test_a_signature_policy_is_kept(place: Path, registry: Registry) -> None:
    """A host whose policy rejects everything: a wrapper names the policy."""
    policy = place / "policy.json"
    policy.write_text('{"default": [{"type": "reject"}]}')
    wrapper = place / "skopeo"
    wrapper.write_text(
        f'#!/bin/sh\nfor word; do shift; [ "$word" = --insecure-policy ] || set -- "$@" "$word"; '
        f'done\nexec {shutil.which("skopeo")} --policy {policy} "$@"\n'
    )
    wrapper.chmod(0o755)
    name = pushed(registry, place, "unsigned:1", BASE)
    async with ImageStore(ImagePaths(place / "data", place / "run"), skopeo=wrapper) as images:
        with pytest.raises(FailedError, match=r"^SignatureValidationFailed: "):
            await images.pull(name)
        assert images.all() == ()
