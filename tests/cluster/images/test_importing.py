"""Images are given to a store that lacks them, in one archive that goes again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cluster.images.listing import import_images
from moorage.engine.errors import NotFoundError


class Store:
    """Has some images, and takes an archive or refuses it."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.loaded: list[tuple[Path, bytes]] = []
        self.error: Exception | None = None

    def find(self, name: str) -> Any:
        if name not in self.ids:
            raise NotFoundError(name)
        return SimpleNamespace(id=self.ids[name])

    async def load(self, archive: Path) -> None:
        self.loaded.append((archive, archive.read_bytes()))  # noqa: ASYNC240
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> Store:
    return Store()


def pack(images: Any) -> bytes:
    return " ".join(image.name for image in images).encode()


IMAGES: Any = [SimpleNamespace(name=name, id=f"id of {name}") for name in "abc"]


async def test_only_what_is_missing_or_another_is_given(store: Any, tmp_path: Path) -> None:
    scratch = tmp_path / "new" / "images.tar"
    store.ids = {"a": "id of a", "b": "another"}
    await import_images(IMAGES, store, scratch, pack)
    assert store.loaded == [(scratch, b"b c")]
    assert not scratch.exists()
    store.ids = {name: f"id of {name}" for name in "abc"}
    await import_images(IMAGES, store, tmp_path / "other" / "images.tar", pack)
    assert len(store.loaded) == 1
    assert not (tmp_path / "other").exists()


async def test_the_archive_goes_also_when_it_is_refused(store: Any, tmp_path: Path) -> None:
    store.error = OSError(28, "full")
    with pytest.raises(OSError, match="full"):
        await import_images(IMAGES, store, tmp_path / "images.tar", pack)
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def test_the_error_of_an_archive_that_cannot_be_written_is_raised(
    store: Any, tmp_path: Path
) -> None:
    def fail(_: object) -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await import_images(IMAGES, store, tmp_path / "images.tar", fail)
    assert store.loaded == []
