"""Images are given to a store that lacks them, in one archive that goes again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cluster.images import importing
from moorage.cluster.images.catalogue import Busybox, NoPauseError
from moorage.cluster.images.importing import catalogue, import_images
from moorage.engine import NotFoundError
from moorage.linux.command import CommandError
from moorage.linux.program import Platform, Program, UnfitProgramError


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
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(
        importing, "write_archive", lambda images: " ".join(image.name for image in images).encode()
    )
    return Store()


IMAGES: Any = [SimpleNamespace(name=name, id=f"id of {name}") for name in "abc"]


async def test_only_what_is_missing_or_another_is_given(store: Any, tmp_path: Path) -> None:
    scratch = tmp_path / "new" / "images.tar"
    store.ids = {"a": "id of a", "b": "another"}
    await import_images(IMAGES, store, scratch)
    assert store.loaded == [(scratch, b"b c")]
    assert not scratch.exists()
    store.ids = {name: f"id of {name}" for name in "abc"}
    await import_images(IMAGES, store, tmp_path / "other" / "images.tar")
    assert len(store.loaded) == 1
    assert not (tmp_path / "other").exists()


async def test_the_archive_goes_also_when_it_is_refused(store: Any, tmp_path: Path) -> None:
    store.error = OSError(28, "full")
    with pytest.raises(OSError, match="full"):
        await import_images(IMAGES, store, tmp_path / "images.tar")
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def test_the_error_of_an_archive_that_cannot_be_written_is_raised(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importing, "write_archive", fail)
    with pytest.raises(OSError, match="No space left"):
        await import_images(IMAGES, store, tmp_path / "images.tar")
    assert store.loaded == []


BOX, PAUSE = Path("/usr/bin/busybox"), Path("/usr/bin/catatonit")


class Programs:
    """Programs that can be read, except those in `unfit`; busybox lists two commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unfit: set[Path] = set()
        self.list_error = ""
        self.warned: list[str] = []
        monkeypatch.setattr(importing, "read_program", self._read)
        monkeypatch.setattr(importing, "must_run", self._run)
        monkeypatch.setattr(importing, "images_from", lambda box, pause: (box, pause))
        monkeypatch.setattr(importing.log, "warning", self._warn)

    def _read(self, path: Path, package: str) -> Program:
        if path in self.unfit:
            raise UnfitProgramError(path, "needs libraries", package)
        return Program(str(path).encode(), Platform("amd64"))

    async def _run(self, argv: list[Any]) -> Any:
        assert argv == [BOX, "--list"]
        if self.list_error:
            raise CommandError([str(word) for word in argv], self.list_error)
        return SimpleNamespace(text="sh\nls\n")

    def _warn(self, text: str, *, reason: str) -> None:
        self.warned.append(f"{text}: {reason}")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(monkeypatch)


BOX_PROGRAM = Busybox(Program(b"/usr/bin/busybox", Platform("amd64")), ("sh", "ls"))
PAUSE_PROGRAM = Program(b"/usr/bin/catatonit", Platform("amd64"))
NO_BOX = "there is no busybox image: "


@pytest.mark.parametrize(
    ("busybox", "catatonit", "unfit", "list_error", "images", "warning"),
    [
        (BOX, PAUSE, None, "", (BOX_PROGRAM, PAUSE_PROGRAM), ""),
        (BOX, None, None, "", (BOX_PROGRAM, None), ""),
        (BOX, PAUSE, PAUSE, "", (BOX_PROGRAM, None), ""),
        (None, PAUSE, None, "", (None, PAUSE_PROGRAM),
         f"{NO_BOX}busybox is not on PATH; a static one is needed: apt-get install busybox-static"),
        (BOX, PAUSE, BOX, "", (None, PAUSE_PROGRAM),
         f"{NO_BOX}{BOX} needs libraries; a static one is needed: apt-get install busybox-static"),
        (BOX, PAUSE, None, "exit status 1", (None, PAUSE_PROGRAM),
         f"{NO_BOX}`{BOX} --list`: exit status 1"),
    ],
)  # fmt: skip
async def test_images_are_made_of_the_programs_that_can_be(
    programs: Programs, busybox: Path | None, catatonit: Path | None, unfit: Path | None,
    list_error: str, images: Any, warning: str,
) -> None:  # fmt: skip
    programs.unfit = {unfit} if unfit else set()
    programs.list_error = list_error
    assert await catalogue(busybox, catatonit) == images
    assert programs.warned == ([warning] if warning else [])


async def test_without_a_usable_program_each_is_named(programs: Programs) -> None:
    programs.list_error = "exit status 1"
    with pytest.raises(NoPauseError) as failed:
        await catalogue(BOX, None)
    assert str(failed.value) == (
        "no image for pods' sandboxes can be made: catatonit is not on PATH; a static one is "
        f"needed: apt-get install catatonit; `{BOX} --list`: exit status 1"
    )
    assert programs.warned == []
