"""Archives that hold together only in part, read without a store."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.errors import ExhaustedError, FailedError, NotFoundError
from moorage.engine.images import catalogue, layers
from moorage.engine.images import snapshotter as native
from moorage.engine.images.archive import ArchivedImage, read_archive
from moorage.engine.images.image import MalformedImageError, layers_of
from moorage.engine.images.manifest import OCI_MANIFEST, Platform, digest_of
from moorage.linux.command import Answer, CommandError
from tests.engine.images.builds import Entry, hard_link, layer, link

PLATFORM = Platform("amd64")
INDEX = "application/vnd.oci.image.index.v1+json"
NAME = "org.opencontainers.image.ref.name"
FULL = "io.containerd.image.name"


def text(document: Any) -> bytes:
    return json.dumps(document).encode()


def blob(content: bytes) -> Entry:
    return Entry(f"blobs/sha256/{digest_of(content).removeprefix('sha256:')}", content)


def described(content: bytes, kind: str = OCI_MANIFEST, **more: Any) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content), **more}


def index(*entries: dict[str, Any]) -> bytes:
    return text({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)})


CONFIG = text({"architecture": "amd64", "os": "linux",
               "rootfs": {"type": "layers", "diff_ids": [digest_of(b"one")]}})  # fmt: skip
KIND = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = text({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described(CONFIG, "c"),
                 "layers": [described(b"one", KIND)]})  # fmt: skip
BLOBS = (blob(CONFIG), blob(MANIFEST), blob(b"one"))


def read(tmp_path: Path, *entries: Entry, **limits: int) -> tuple[ArchivedImage, ...]:
    path = tmp_path / "a.tar"
    path.write_bytes(layer(*entries))
    return read_archive(path, tmp_path, PLATFORM, None, **limits)


def test_an_index_that_names_one_document_many_times_is_bounded(tmp_path: Path) -> None:
    settings = text({"padding": "x" * (4 << 20)} | json.loads(CONFIG))
    manifest = text({"schemaVersion": 2, "config": described(settings, "c"),
                     "layers": [described(b"one", KIND)]})  # fmt: skip
    more = (blob(settings), blob(manifest))
    assert len(of_index(tmp_path, *[described(manifest)] * 5, more=more)) == 5
    with pytest.raises(MalformedImageError, match="more than 64 MiB; load fewer images at once"):
        of_index(tmp_path, *[described(manifest)] * 20, more=more)


def test_an_archived_image_of_too_many_layers_is_refused(tmp_path: Path) -> None:
    many = text({"schemaVersion": 2, "config": described(CONFIG, "c"),
                 "layers": [described(b"one", KIND)] * 501})  # fmt: skip
    with pytest.raises(MalformedImageError, match="it has 501 layers, more than 500"):
        of_index(tmp_path, described(many), more=(blob(many),))
    saved = text([{"Config": "c", "Layers": ["l"] * 501}])
    entries = (Entry("manifest.json", saved), Entry("c", CONFIG), Entry("l", b"one"))
    with pytest.raises(MalformedImageError, match="it has 501 layers, more than 500"):
        read(tmp_path, *entries)


def of_index(tmp_path: Path, *entries: dict[str, Any], more: tuple[Entry, ...] = ()) -> Any:
    return read(tmp_path, Entry("index.json", index(*entries)), *BLOBS, *more)


def named(**annotations: str) -> dict[str, Any]:
    keys = {"full": FULL, "name": NAME}
    return described(MANIFEST, annotations={keys[key]: annotations[key] for key in annotations})


@pytest.mark.parametrize(
    ("annotations", "tags", "has_digest"),
    [
        ({}, (), False),
        ({"name": "1.2"}, (), False),
        ({"name": "r.example/a:1"}, ("r.example/a:1",), True),
        ({"name": "a:1"}, ("docker.io/library/a:1",), True),
        ({"full": "a", "name": "other:9"}, ("docker.io/library/a:latest",), True),
        ({"full": "", "name": "r.example/a"}, ("r.example/a:latest",), True),
        ({"name": f"r.example/a@{digest_of(MANIFEST)}"}, (), True),
    ],
)
def test_the_names_of_an_image(
    tmp_path: Path, annotations: dict[str, str], tags: tuple[str, ...], has_digest: bool
) -> None:
    (image,) = of_index(tmp_path, named(**annotations))
    assert image.tags == tags
    repository = "docker.io/library/a" if "r.example" not in str(annotations) else "r.example/a"
    wanted = (f"{repository}@{digest_of(MANIFEST)}",) if has_digest else ()
    assert image.digests == wanted
    assert image.configuration == CONFIG
    (result,) = image.blobs
    assert (result.digest, result.size_bytes if hasattr(result, "size_bytes") else 3) == (
        digest_of(b"one"), 3
    )  # fmt: skip


def test_of_a_list_the_machines_image_is_read(tmp_path: Path) -> None:
    platform = {"architecture": "amd64", "os": "linux"}
    inner = index(described(MANIFEST, platform=platform))
    (image,) = of_index(tmp_path, described(inner, INDEX), more=(blob(inner),))
    assert image.configuration == CONFIG
    outer = index(described(inner, INDEX, platform=platform))
    with pytest.raises(MalformedImageError, match="is a nested index"):
        of_index(tmp_path, described(outer, INDEX), more=(blob(inner), blob(outer)))


SAVED = Entry("manifest.json", b'[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]')


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((Entry("index.json", MANIFEST),), "index.json in .* lists no images"),
        (
            (Entry("index.json", index(described(MANIFEST))), blob(CONFIG),
             Entry(blob(MANIFEST).name, CONFIG)),
            "does not match its digest",
        ),
        ((Entry("index.json", index(named(name="A b/c"))), *BLOBS), "invalid reference format"),
        ((Entry("manifest.json", b"{"),), "manifest.json in "),
        ((Entry("manifest.json", b"\xff"),), "manifest.json in "),
        ((Entry("manifest.json", b'[{"Config":"c","RepoTags":["A b"],"Layers":[]}]'),
          Entry("c", CONFIG)), "invalid reference format"),
        ((SAVED, Entry("c", CONFIG)), "l is missing"),
        ((SAVED, Entry("c", CONFIG), link("l", "x"), link("x", "l")), "l is missing"),
    ],
)  # fmt: skip
def test_what_does_not_hold_together(tmp_path: Path, entries: tuple[Entry, ...], why: str) -> None:
    with pytest.raises(MalformedImageError, match=why):
        read(tmp_path, *entries)


@pytest.mark.parametrize("there", [link("d/l", "../real"), hard_link("d/l", "real")])
def test_links_lead_to_layers_that_are_there_once(tmp_path: Path, there: Entry) -> None:
    saved = Entry("manifest.json", b'[{"Config":"c","Layers":["d/l"]}]')
    for content, packing in ((b"plain", ""), (b"\x1f\x8bxx", "gzip")):
        (image,) = read(tmp_path, saved, Entry("c", CONFIG), Entry("real", content), there)
        (result,) = image.blobs
        assert result.compression == packing
        assert image.tags == image.digests == ()
        with tarfile.open(tmp_path / "a.tar") as opened:
            assert result.offset == opened.getmember("real").offset_data


def test_how_many_links_are_followed(tmp_path: Path) -> None:
    saved = Entry("manifest.json", b'[{"Config":"c","Layers":["l0"]}]')
    for count, is_found in ((8, True), (9, False)):
        chain = [link(f"l{n}", f"l{n + 1}") for n in range(count)]
        entries = (saved, Entry("c", CONFIG), *chain, Entry(f"l{count}", b"x"))
        if is_found:
            assert len(read(tmp_path, *entries)[0].blobs) == 1
        else:
            with pytest.raises(MalformedImageError, match="l0 is missing"):
                read(tmp_path, *entries)


def test_bounds_of_documents_and_entries(tmp_path: Path) -> None:
    whole = (SAVED, Entry("c", CONFIG), Entry("l", b"x"))
    assert read(tmp_path, *whole, document_bytes=len(CONFIG))
    with pytest.raises(MalformedImageError, match=r"c in .* is too large for a JSON document"):
        read(tmp_path, *whole, document_bytes=len(CONFIG) - 1)
    assert read(tmp_path, *whole, entries=3)
    with pytest.raises(MalformedImageError, match="it has more than 3 files"):
        read(tmp_path, *whole, link("m", "l"), entries=3)


def test_an_image_has_as_many_layers_as_blobs() -> None:
    with pytest.raises(MalformedImageError, match="lists 1 layers, its manifest 0"):
        layers_of(CONFIG, 0)


# The store's lists, where the disk refuses.


class Files:
    def configuration(self, _id: str) -> bytes:
        raise FileNotFoundError


class Layers:
    error: OSError | None = None

    def discard(self, _needed: set[str]) -> list[Path]:
        if self.error is not None:
            raise self.error
        return []


IMAGE: Any = type("Image", (), {"id": "sha256:1", "name": "a:1", "layers": ()})


none: Any = None


async def test_disk_errors_name_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    below = Layers()
    arguments: Any = (Files(), below, set)
    images = catalogue.Catalogue(*arguments)
    with pytest.raises(NotFoundError, match="image a:1 was removed"):
        await images.configuration(IMAGE)

    def refuse(*_: object) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(images, "_drop", refuse)
    monkeypatch.setattr(images, "_put", refuse)
    with pytest.raises(ExhaustedError, match="image a:1: no room"):
        await images.remove(IMAGE)
    with pytest.raises(ExhaustedError, match="image a:1: no room"):
        await images._commit(IMAGE, b"")
    below.error = OSError(5, "broken")
    with pytest.raises(FailedError, match="unused layers: broken"):
        await images.collect()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(("x",), 0, b"", b""), {}),
        (Answer(("x",), 1, b'{"error": "why", "full": true}', b""), {"error": "why", "full": True}),
        (
            Answer(("x",), -9, b"", b"oops\nKilled"),
            {"error": "the unpack process exited with status -9: Killed", "full": False},
        ),
        (CommandError(["x"], "late"), {"error": "`x`: late", "full": False}),
    ],
)
async def test_how_the_process_that_unpacks_ended(
    monkeypatch: pytest.MonkeyPatch, answer: Any, outcome: dict[str, Any]
) -> None:
    asked: list[Any] = []

    async def run(argv: list[Any], **options: Any) -> Answer:
        asked.append((argv, options))
        if isinstance(answer, Exception):
            raise answer
        result: Answer = answer
        return result

    monkeypatch.setattr(layers, "run", run)
    assert await layers._run({"a": 1}) == outcome
    ((argv, options),) = asked
    assert argv[1:3] == ["-I", "-S"]
    assert Path(argv[3]).name == "unpack.py"
    assert json.loads(options["stdin"]) == {"a": 1}
    assert set(options["environment"]) == {"PATH", "LANG"}
    assert options["environment"]["LANG"] == "C.UTF-8"


def test_unreadable_layers_are_removed(tmp_path: Path) -> None:
    record = b'{"size_bytes":7,"inodes":2,"whiteouts":[],"opaques":[]}'
    for name, content in (("aa", b"{"), ("bb", None), (".new-1", record)):
        (tmp_path / "l" / name).mkdir(parents=True)
        if content is not None:
            (tmp_path / "l" / name / layers._RECORD).write_bytes(content)
    store = layers.Layers(tmp_path / "l", none, is_marked=False)
    store.load()
    assert list((tmp_path / "l").iterdir()) == []
    assert "sha256:aa" not in store


def test_a_tree_that_cannot_be_copied_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_layer: Path) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(native, "read_record", refuse)
    with pytest.raises(OSError, match="no room"):
        native.Native()._copy(tmp_path, [tmp_path / "layer"], None)
    assert list(tmp_path.iterdir()) == []
