"""`moor image` against an engine that is a fake behind a real socket."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from moorage.cli.factory import Factory
from moorage.cluster.layout import Layout
from moorage.wire.cri import pb
from tests.cli.moor import Answer, FakeEngine, Terminal, change, cluster, locked, moor, serving

ID = f"sha256:{'0123456789ab' * 5}cdef"
IMAGES = [
    pb.Image(id=ID, repo_tags=["b:1", "b:2"], repo_digests=["b@sha256:1"], size=3 * 2**19),
    pb.Image(id="sha256:dd", repo_digests=["a@sha256:2"], size=2**20, pinned=True),
    pb.Image(id="sha256:ee", size=0),
]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(images=list(IMAGES), loads=["x:1", "x:2"])


@pytest.fixture
def layout(tmp_path: Path, engine: FakeEngine) -> Iterator[Layout]:
    """A cluster that runs with an engine of its own."""
    layout = cluster(tmp_path, cluster_id="c")
    with serving(engine, tmp_path / "c/engine.sock"), locked(layout):
        yield layout


def test_list_has_a_row_for_each_name(layout: Layout) -> None:
    assert moor("image", "list", "--data-dir", layout.root).out.splitlines() == [
        "IMAGE        ID             SIZE      PINNED",
        "a@sha256:2   dd             1.0 MiB   yes",
        "b:1          0123456789ab   1.5 MiB   no",
        "b:2          0123456789ab   1.5 MiB   no",
        "(no name)    ee             0.0 MiB   no",
    ]
    output = moor("image", "list", "-o", "yaml", "--data-dir", layout.root).out
    assert yaml.safe_load(output)[1] == {
        "id": ID, "tags": ["b:1", "b:2"], "digests": ["b@sha256:1"], "size_bytes": 3 * 2**19,
        "pinned": False,
    }  # fmt: skip


def test_the_cluster_that_kubeconfig_names_is_listed_or_said_to_be_elsewhere(
    layout: Layout, tmp_path: Path
) -> None:
    factory = Factory(tmp_path)
    environment = {"MOORAGE_DATA_DIR": "", "KUBECONFIG": str(layout.kubeconfig)}
    layout.kubeconfig.touch()
    assert moor("image", "list", factory=factory, environment=environment).out.startswith("IMAGE ")
    environment["KUBECONFIG"] = str(tmp_path / "other")
    answer = moor(
        "image", "list", "--data-dir", layout.root, factory=factory, environment=environment
    )
    assert answer.err == ""
    answer = moor("image", "list", factory=factory, environment=environment)
    assert "KUBECONFIG names another cluster" in answer.err


def test_remove_says_every_name_that_went(layout: Layout, engine: FakeEngine) -> None:
    answer = moor("image", "remove", "b:2", "sha256:ee", "--data-dir", layout.root)
    assert answer == Answer(0, "removed b:1, b:2\nremoved sha256:ee\n", "")
    assert engine.removed == ["b:2", "sha256:ee"]
    answer = moor("image", "remove", "c", "--data-dir", layout.root)
    assert (answer.status, answer.out) == (1, "")
    assert "there is no image c" in answer.err
    assert len(engine.removed) == 2


def archive_of(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_load_prints_the_names_and_what_it_loads(
    layout: Layout, engine: FakeEngine, tmp_path: Path
) -> None:
    one, two = (archive_of(tmp_path / name) for name in ("one.tar", "two.tar"))
    answer = moor("image", "load", one, two, "--data-dir", layout.root)
    assert answer == Answer(
        0, "x:1\nx:2\n" * 2, f"loading {one} (0.0 MiB)\nloading {two} (0.0 MiB)\n"
    )
    assert engine.loaded == [str(one), str(two)]
    engine.loads.clear()
    answer = moor("image", "load", one, "--data-dir", layout.root)
    assert (answer.status, answer.out) == (1, "")
    assert "moor: no archive of images" in answer.err


def test_a_root_file_system_is_imported_by_way_of_a_file_that_goes(
    layout: Layout, engine: FakeEngine, tmp_path: Path
) -> None:
    root_fs = archive_of(tmp_path / "root.tar", hello="x")
    answer = moor("image", "import", root_fs, "tool:3", "--data-dir", layout.root)
    assert answer == Answer(0, "x:1\nx:2\n", f"importing {root_fs} (0.0 MiB)\n")
    assert [Path(path).parent for path in engine.loaded] == [layout.images]
    assert list(layout.images.iterdir()) == []
    assert layout.images.stat().st_mode & 0o777 == 0o700
    engine.loads.clear()
    assert moor("image", "import", root_fs, "tool:3", "--data-dir", layout.root).status == 1
    assert list(layout.images.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        (f"tool@sha256:{'a' * 64}", 2, "an import takes a name with a tag, not a digest"),
        ("No Name", 2, "invalid reference format"),
        ("tool", 1, "root.tar"),
    ],
)
def test_invalid_import_is_rejected(
    layout: Layout, tmp_path: Path, name: str, status: int, message: str
) -> None:
    (tmp_path / "root.tar").write_text("no archive")
    answer = moor("image", "import", tmp_path / "root.tar", name, "--data-dir", layout.root)
    assert (answer.status, answer.out) == (status, "")
    assert message in answer.err


def test_only_a_clusters_own_engine_loads(layout: Layout, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "one.tar", hello="x")
    change(layout, cri="unix:///run/x.sock")
    for arguments in (("load", archive), ("import", archive, "a")):
        answer = moor("image", *arguments, "--data-dir", layout.root)
        assert answer.status == 1
        assert "own engine only; this cluster uses the one at unix:///run/x.sock" in answer.err
    change(layout, has_node=False)
    without_node: tuple[tuple[str | Path, ...], ...] = (
        ("load", archive), ("list",), ("remove", "x"),
    )  # fmt: skip
    for words in without_node:
        answer = moor("image", *words, "--data-dir", layout.root)
        assert answer.status == 1
        assert "this cluster has no node" in answer.err


def test_another_engines_images_are_listed_and_removed(
    layout: Layout, engine: FakeEngine, tmp_path: Path
) -> None:
    other = FakeEngine(images=[pb.Image(id="sha256:ff", repo_tags=["other:1"])])
    with serving(other, tmp_path / "other.sock") as endpoint:
        change(layout, cri=endpoint)
        assert "other:1" in moor("image", "list", "--data-dir", layout.root).out
        assert moor("image", "remove", "other:1", "--data-dir", layout.root).status == 0
    assert (other.removed, engine.removed) == (["other:1"], [])
    answer = moor("image", "list", "--data-dir", layout.root)
    assert answer.status == 1
    assert "images cannot be listed" in answer.err
    assert moor("image", "remove", "x", "--data-dir", layout.root).status == 1


@pytest.mark.parametrize("exact", [True, False])
def test_save_says_which_images_were_packed_again(
    layout: Layout, engine: FakeEngine, tmp_path: Path, exact: bool
) -> None:
    engine.exact = exact
    target = tmp_path / "out.tar"
    command = ("image", "save", "a", "b", "-o", target, "--data-dir", layout.root)
    answer = moor(*command)
    assert (answer.status, answer.out) == (0, "a\nb\n")
    again = [
        f"moor: {name} was packed again: its files are the same, its id is abababababab now"
        for name in "ab"
    ]
    assert answer.err.splitlines() == ([] if exact else again)
    assert target.exists()
    answer = moor(*command)
    assert answer.status == 1
    assert "--force to replace it" in answer.err
    assert moor(*command, "--force").status == 0
    assert engine.saved == ["a", "b"] * 2


def test_without_an_engine_of_its_own_that_runs_only_what_is_made_here_is_saved(
    layout: Layout, engine: FakeEngine, tmp_path: Path
) -> None:
    command = ("image", "save", "a", "-o", tmp_path / "out.tar", "--data-dir")
    for changes in ({"cri": "unix:///run/x.sock"}, {"has_node": False}):
        change(layout, **changes)
        answer = moor(*command, layout.root)
        assert answer.status == 1
        assert "own engine while it runs" in answer.err
    down = cluster_beside(tmp_path, "down")
    answer = moor(*command, down.root)
    assert "own engine while it runs" in answer.err
    down.settings.unlink()
    answer = moor(*command, down.root)
    assert "own engine while it runs" in answer.err
    assert engine.saved == []


def cluster_beside(tmp_path: Path, name: str) -> Layout:
    (tmp_path / name).mkdir()
    return cluster(tmp_path / name, cluster_id="c")


def test_of_a_cluster_that_is_down_nothing_is_listed(tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    for arguments in (("list",), ("remove", "x"), ("load", "/etc/passwd")):
        answer = moor("image", *arguments, "--data-dir", layout.root)
        assert answer.status == 3
        assert "is not running; `moor up` resumes it" in answer.err


def test_progress_is_redrawn_on_a_terminal(
    layout: Layout, engine: FakeEngine, tmp_path: Path
) -> None:
    archive = archive_of(tmp_path / "one.tar")

    class Redrawn(Terminal):
        def write(self, text: str) -> int:
            if "\r" in text:
                engine.may_load.set()
            return super().write(text)

    factory = Factory(tmp_path)
    factory.progress_s = 0.001
    engine.may_load.clear()
    answer = moor(
        "image", "load", archive, "--data-dir", layout.root, factory=factory, err=Redrawn()
    )
    sentence = f"loading {archive} (0.0 MiB)"
    first, *again = answer.err.split("\r")
    assert first == sentence
    assert len(again) >= 2
    assert all(text.startswith(f"{sentence} ") for text in again)
    assert again[0] == f"{sentence} 0 s"
    assert again[-1].endswith(" s\n")
    assert 0 <= float(again[-1].split()[-2]) < 60
