from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.node.garbage.images import (
    Candidate,
    DiskUse,
    ImageCollector,
    bytes_to_free,
    chosen,
    sandbox_image,
)
from moorage.node.options import ImageGarbageOptions
from moorage.wire.cri import pb
from tests.clocks import START, FakeClock

OPTIONS = ImageGarbageOptions(high_percent=85, low_percent=80)


@pytest.mark.parametrize(("free", "wanted"), [(100, 0), (16, 0), (15, 5), (10, 10), (0, 20)])
def test_how_much_must_go(free: int, wanted: int) -> None:
    assert bytes_to_free(DiskUse(100, free), OPTIONS) == wanted


def test_a_disk_of_which_nothing_is_known() -> None:
    assert bytes_to_free(DiskUse(0, 0), OPTIONS) == 0


def candidate(name: str, used_s: float = 0, seen_s: float = 0) -> Candidate:
    return Candidate(name, 10, used_s, seen_s)


@pytest.mark.parametrize(
    ("wanted_bytes", "names"), [(0, ""), (1, "b"), (10, "b"), (11, "ba"), (99, "bac")]
)
def test_the_longest_unused_go_first_until_enough_is_freed(wanted_bytes: int, names: str) -> None:
    result = [candidate("c", 9), candidate("a", 5), candidate("b", 5, -1)]
    assert "".join(candidate.id for candidate in chosen(result, wanted_bytes, 0, 10)) == names


def test_young_images_stay() -> None:
    result = [candidate("young", seen_s=95), candidate("old", 50, seen_s=-30)]
    assert [candidate.id for candidate in chosen(result, 99, 120, 100)] == ["old"]


@given(
    st.lists(
        st.builds(
            Candidate,
            st.uuids().map(str),
            st.integers(1, 50),
            st.integers(0, 9).map(float),
            st.just(0.0),
        )
    ),
    st.integers(0, 200),
)
def test_no_more_images_are_chosen_than_needed(candidates: list[Candidate], wanted: int) -> None:
    selected = chosen(candidates, wanted, 0, 10)
    sizes = [image.size_bytes for image in selected]
    assert sum(sizes[:-1]) < wanted or not sizes
    assert sum(sizes) >= wanted or len(selected) == len(candidates)


@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        ({"config": '{"sandboxImage": "pause:3.9"}'}, "pause:3.9"),
        ({}, ""),
        ({"config": "{"}, ""),
        ({"config": "[" * 100_000}, ""),
        ({"config": "[]"}, ""),
        ({"config": '{"sandboxImage": 5}'}, ""),
    ],
)
def test_sandbox_image_is_read_from_the_engines_info(info: Any, wanted: str) -> None:
    assert sandbox_image(info) == wanted


class FakeEngine:
    def __init__(self) -> None:
        self.list = [
            pb.Image(id="used", repo_tags=["app:1"], size=10),
            pb.Image(id="digest", repo_digests=["app@sha256:d"], size=10),
            pb.Image(id="pinned", size=10, pinned=True),
            pb.Image(id="pause", repo_tags=["registry/pause:3"], size=10),
            pb.Image(id="free", repo_tags=["other:1"], size=10),
        ]
        self.removed: list[str] = []

    async def images(self) -> list[pb.Image]:
        return self.list

    async def containers(self) -> list[pb.Container]:
        return [
            pb.Container(image=pb.ImageSpec(image="app:1"), image_ref="sha256:x"),
            pb.Container(image_ref="app@sha256:d"),
        ]

    async def verbose_info(self) -> dict[str, str]:
        return {"config": '{"sandboxImage": "pause:3"}'}

    async def image_filesystems(self) -> pb.ImageFsInfoResponse:
        mount = pb.FilesystemIdentifier(mountpoint="/images")
        return pb.ImageFsInfoResponse(image_filesystems=[pb.FilesystemUsage(fs_id=mount)])

    async def remove_image(self, reference: str) -> None:
        self.removed.append(reference)


async def test_only_unused_images_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(f_blocks=100, f_frsize=1, f_bavail=0)
    monkeypatch.setattr("moorage.node.garbage.images.os.statvfs", lambda _: full)
    engine, clock = FakeEngine(), FakeClock()
    tidied = []

    async def tidy(images: Collection[str], before: datetime) -> None:
        tidied.append((set(images), before))

    collector = ImageCollector(engine, OPTIONS, clock, tidy)  # type: ignore[arg-type]
    await collector.collect()
    assert engine.removed == [], "too young to go"
    clock.advance(121)
    await collector.collect()
    assert engine.removed == ["free"]
    present = {image.id for image in await engine.images()}
    assert tidied == [(present, START), (present, START + timedelta(seconds=121))]


async def _nothing(images: Collection[str], before: datetime) -> None:
    del images, before


async def test_a_disk_with_room_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = SimpleNamespace(f_blocks=100, f_frsize=1, f_bavail=50)
    monkeypatch.setattr("moorage.node.garbage.images.os.statvfs", lambda _: roomy)
    engine, clock = FakeEngine(), FakeClock()
    collector = ImageCollector(engine, OPTIONS, clock, _nothing)  # type: ignore[arg-type]
    await collector.collect()
    clock.advance(10_000)
    await collector.collect()
    assert engine.removed == []


async def test_under_pressure_every_unused_image_goes_that_is_old_enough() -> None:
    engine, clock = FakeEngine(), FakeClock()
    collector = ImageCollector(engine, OPTIONS, clock, _nothing)  # type: ignore[arg-type]
    await collector.remove_unused()
    assert engine.removed == []
    clock.advance(121)
    await collector.remove_unused()
    assert engine.removed == ["free"]
