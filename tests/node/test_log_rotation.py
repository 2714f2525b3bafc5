from __future__ import annotations

import gzip
from pathlib import Path

import grpc
import pytest

from moorage.node import log_rotation
from moorage.node.log_rotation import LogKeeper, pieces_of
from moorage.node.options import LogRotationOptions
from moorage.node.paths import NodePaths
from moorage.node.runtime.views import ContainerView, PodView
from moorage.wire.cri import CriError
from tests.clocks import FakeClock
from tests.node.objects import UID, a_pod, a_view, engine_has


class FakeEngine:
    """Opens a log again, as an engine does; refuses when configured to."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.is_refusing = False
        self.reopened: list[str] = []

    async def reopen_log(self, container_id: str) -> None:
        if self.is_refusing:
            raise CriError("ReopenContainerLog", grpc.StatusCode.UNKNOWN, "not running")
        self.reopened.append(container_id)
        self._log.write_text("")


class Node:
    def __init__(self, root: Path) -> None:
        self.log = root / "shop_web" / "app" / "0.log"
        self.log.parent.mkdir(parents=True)
        self.engine, self.clock = FakeEngine(self.log), FakeClock()
        self.container = engine_has(log_path=str(self.log))
        self.others: list[ContainerView] = []
        self.links = root / "containers"
        self.links.mkdir()
        self.keeper = LogKeeper(
            engine=self.engine,  # type: ignore[arg-type]
            observer=self,  # type: ignore[arg-type]
            paths=NodePaths(root, root),
            links=self.links,
            options=LogRotationOptions(max_bytes=10, max_files=3, period_s=10),
            clock=self.clock,
        )

    @property
    def pods(self) -> list[PodView]:
        return [a_view(self.container, *self.others)]

    async def rotate(self, content: str) -> None:
        self.log.write_text(content)
        self.clock.advance(60)
        await self.look()

    async def look(self) -> None:
        await self.keeper.rotate_long()
        await self.keeper.compress_rotated()

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.log.parent.iterdir())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_short_log_is_left_alone(node: Node) -> None:
    await node.rotate("short")
    assert node.names == ["0.log"]


async def test_long_log_is_renamed_and_the_engine_notified(node: Node) -> None:
    await node.rotate("0123456789")
    assert node.names == ["0.log", "0.log.20260101-000100"]
    assert node.engine.reopened == ["app-0"]
    assert pieces_of(node.log)[0].read_text() == "0123456789"


async def test_older_pieces_are_compressed_and_the_oldest_removed(node: Node) -> None:
    for content in ("first-------", "second------", "third-------"):
        await node.rotate(content)
    assert node.names == ["0.log", "0.log.20260101-000200.gz", "0.log.20260101-000300"]
    with gzip.open(pieces_of(node.log)[0]) as file:
        assert file.read() == b"second------"


async def test_a_second_rotation_within_a_second_does_not_overwrite_the_first(node: Node) -> None:
    await node.rotate("first-------")
    node.log.write_text("second------")
    await node.look()
    assert node.names == ["0.log", "0.log.20260101-000100"]
    assert pieces_of(node.log)[0].read_text() == "first-------"
    await node.rotate("second------")
    assert node.names == ["0.log", "0.log.20260101-000100.gz", "0.log.20260101-000200"]


async def test_a_log_is_rotated_while_another_is_compressed(tmp_path: Path, node: Node) -> None:
    other = tmp_path / "shop_web" / "other" / "0.log"
    other.parent.mkdir()
    other.write_text("0123456789")
    node.others = [engine_has(name="other", log_path=str(other))]
    node.log.write_text("0123456789")
    await node.keeper.rotate_long()
    assert len(pieces_of(node.log)) == len(pieces_of(other)) == 1


async def test_a_log_whose_directory_has_gone_does_not_end_the_rotation(node: Node) -> None:
    for content in ("first-------", "second------"):
        node.log.write_text(content)
        node.clock.advance(60)
        await node.keeper.rotate_long()
    for piece in pieces_of(node.log):
        piece.unlink()
    node.log.unlink()
    node.log.parent.rmdir()
    await node.keeper.compress_rotated()
    assert not node.log.parent.exists()


async def test_refused_reopen_keeps_the_old_file(node: Node) -> None:
    node.engine.is_refusing = True
    await node.rotate("0123456789")
    assert node.names == ["0.log"]
    assert node.log.read_text() == "0123456789"


async def test_log_that_an_earlier_agent_only_renamed_is_reopened(node: Node) -> None:
    node.log.with_name("0.log.20251231-235959").write_text("still written to")
    await node.look()
    assert node.engine.reopened == ["app-0"]
    assert node.log.exists()


async def test_what_was_being_compressed_when_it_crashed_is_begun_again(node: Node) -> None:
    node.log.with_name("0.log.20251231-000000").write_text("old")
    node.log.with_name("0.log.20251231-000000.tmp").write_text("half")
    await node.rotate("0123456789")
    assert node.names == ["0.log", "0.log.20251231-000000.gz", "0.log.20260101-000100"]


async def test_link_in_place_of_a_piece_is_not_compressed(tmp_path: Path, node: Node) -> None:
    (tmp_path / "secret").write_text("the host's")
    node.log.with_name("0.log.20251231-000000").symlink_to(tmp_path / "secret")
    await node.rotate("0123456789")
    assert node.names == ["0.log", "0.log.20251231-000000", "0.log.20260101-000100"]
    assert (tmp_path / "secret").read_text() == "the host's"


async def test_a_containers_logs_go_with_their_links(node: Node) -> None:
    await node.rotate("0123456789")
    link = node.links / "web_shop_app-app-0.log"
    link.symlink_to(node.log)
    await node.keeper.remove_container(node.pods[0], node.container)
    assert node.names == []
    assert not link.is_symlink()


async def test_a_pods_logs_go_as_a_whole(tmp_path: Path, node: Node) -> None:
    directory = tmp_path / f"shop_web_{UID}"
    (directory / "app").mkdir(parents=True)
    await node.keeper.remove_pod(a_pod(), node.pods[0])
    assert not directory.exists()
    await node.keeper.remove_pod(a_pod(), node.pods[0])


def test_logs_of_other_agents_on_the_same_engine_are_theirs_to_rotate(node: Node) -> None:
    assert node.keeper._is_ours(node.container)
    assert not node.keeper._is_ours(engine_has(log_path="/elsewhere/pods/app/0.log"))
    assert not node.keeper._is_ours(engine_has(log_path=""))


def test_file_being_compressed_is_no_piece_and_is_removed_with_the_log(tmp_path: Path) -> None:
    names = ("0.log", "0.log.20260102", "0.log.20260101.gz", "0.log.20260102.tmp", "1.log", "x")
    for name in names:
        (tmp_path / name).touch()
    pieces = log_rotation.pieces_of(tmp_path / "0.log")
    assert [piece.name for piece in pieces] == ["0.log.20260101.gz", "0.log.20260102"]
    log_rotation.remove_pieces(tmp_path / "0.log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.log", "x"]


def test_the_size_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.log"
    assert log_rotation.size_of(path) is None
    path.write_bytes(b"abc")
    assert log_rotation.size_of(path) == 3

    def refuse(_path: Path) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(Path, "stat", refuse)
    assert log_rotation.size_of(path) == 0
