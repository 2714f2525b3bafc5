"""The images made of this machine's programs are saved without an engine, byte for byte."""

from __future__ import annotations

import asyncio
import json
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cluster.images import BUSYBOX, PAUSE, saving
from moorage.cluster.images.saving import SaveError, save_archive
from moorage.cluster.layout import Layout
from moorage.engine.image_layout import digest
from moorage.wire.cri import engine_pb
from tests.cluster.hosts import a_host, tools_without


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    if shutil.which("busybox") is None:
        pytest.skip("busybox is not installed")
    return Layout(tmp_path / "data")


def names_in(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
    return [
        manifest["annotations"]["org.opencontainers.image.ref.name"]
        for manifest in index["manifests"]
    ]


async def test_by_name_and_the_same_each_time(layout: Layout, tmp_path: Path) -> None:
    one, two = tmp_path / "one.tar", tmp_path / "two.tar"
    saved = await save_archive(layout, "", [BUSYBOX, PAUSE], one, overwrites=False)
    assert [(image.name, image.is_exact) for image in saved] == [(BUSYBOX, True), (PAUSE, True)]
    assert names_in(one) == [BUSYBOX, PAUSE]
    await save_archive(layout, "", [BUSYBOX, PAUSE, BUSYBOX], two, overwrites=False)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "moorage.local/none:1",
            f"not one of those built .*{BUSYBOX}",
        ),
        ("busybox", "own engine while it runs"),
        ("No Name", "invalid reference format"),
    ],
)
async def test_others_are_refused_and_nothing_is_written(
    layout: Layout, tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(SaveError, match=why):
        await save_archive(layout, "", [BUSYBOX, name], tmp_path / "out.tar", overwrites=False)
    assert _names(tmp_path) == []


async def test_a_file_that_exists_is_replaced_only_when_asked_to(
    layout: Layout, tmp_path: Path
) -> None:
    target = tmp_path / "out.tar"
    target.write_text("mine")
    with pytest.raises(SaveError, match=r"out\.tar exists: .*--force"):
        await save_archive(layout, "", [BUSYBOX], target, overwrites=False)
    assert target.read_text() == "mine"
    with pytest.raises(SaveError, match="not one of those"):
        await save_archive(layout, "", ["x"], target, overwrites=True)
    assert target.read_text() == "mine"
    await save_archive(layout, "", [BUSYBOX], target, overwrites=True)
    assert names_in(target) == [BUSYBOX]


async def test_unreachable_engine_is_an_error(layout: Layout, tmp_path: Path) -> None:
    layout.root.mkdir()
    with pytest.raises(SaveError):
        await save_archive(
            layout, f"unix://{tmp_path}/none.sock", [BUSYBOX], tmp_path / "o.tar", overwrites=False
        )
    assert _names(layout.images) == []


async def test_a_file_that_comes_while_images_are_saved_stays(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.tar"
    save = saving._save_made

    def save_slowly(*arguments: Any) -> Any:
        target.write_text("theirs")
        return save(*arguments)

    monkeypatch.setattr(saving, "_save_made", save_slowly)
    with pytest.raises(SaveError, match=r"out\.tar was created meanwhile: .*--force"):
        await save_archive(layout, "", [BUSYBOX], target, overwrites=False)
    assert target.read_text() == "theirs"
    assert _names(tmp_path) == ["out.tar"]
    await save_archive(layout, "", [BUSYBOX], target, overwrites=True)
    assert names_in(target) == [BUSYBOX]
    assert _names(tmp_path) == ["out.tar"]


class FakeEngine:
    """An engine that writes the archive itself; it lists the layers it may leave out."""

    engine = SimpleNamespace(SaveImages="save")

    def __init__(self) -> None:
        self.endpoints: list[str] = []
        self.requests: list[Any] = []
        self.layers: set[str] = set()

    def __call__(self, endpoint: str) -> FakeEngine:
        self.endpoints.append(endpoint)
        return self

    async def __aenter__(self) -> FakeEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        assert (method, timeout_s) == ("save", 3600.0)
        self.requests.append(request)
        self.layers = set(_names(Path(request.known_layers)))
        await asyncio.to_thread(Path(request.archive).write_text, "theirs")
        image = engine_pb.SavedImage(name="a:1", id="sha256:1", is_exact=False)
        return engine_pb.SaveImagesResponse(images=[image])


async def test_an_engine_is_asked_for_images_and_given_the_layers_made_here(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(saving, "CriClient", engine)
    target = tmp_path / "out.tar"
    saved = await save_archive(layout, "unix:///e.sock", ["a:1"], target, overwrites=False)
    assert saved == (saving.Saved("a:1", "sha256:1", is_exact=False),)
    assert engine.endpoints == ["unix:///e.sock"]
    (request,) = engine.requests
    assert list(request.images) == ["a:1"]
    # Beside the target, so that it can be renamed, and not yet by its name.
    assert Path(request.archive).parent == tmp_path
    assert Path(request.archive).name.startswith(".out.tar.")
    wanted = {digest(layer) for image in await saving._made_here(layout) for layer in image.layers}
    assert {f"sha256:{name}" for name in engine.layers} == wanted
    assert target.read_text() == "theirs"
    assert _names(layout.images) == []


async def test_images_are_made_of_the_programs_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gather(root: Path) -> Any:
        assert root == tmp_path
        return a_host(tools=tools_without("runc"))

    async def catalogue(*programs: Path | None) -> Any:
        return programs

    monkeypatch.setattr(saving, "gather", gather)
    monkeypatch.setattr(saving, "catalogue", catalogue)
    made: Any = await saving._made_here(Layout(tmp_path))
    assert made == (Path("/usr/bin/busybox"), Path("/usr/bin/catatonit"))


async def test_without_programs_nothing_is_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gather(_: Path) -> Any:
        return a_host(tools={})

    monkeypatch.setattr(saving, "gather", gather)
    with pytest.raises(SaveError, match="there are none"):
        await save_archive(
            Layout(tmp_path / "d"), "", [BUSYBOX], tmp_path / "o.tar", overwrites=False
        )


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
