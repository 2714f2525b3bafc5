"""Images are built from those programs of the host that can be used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cluster.images.building import catalogue
from moorage.cluster.images.catalogue import Busybox, NoPauseError
from moorage.linux.command import CommandError
from moorage.linux.program import Platform, Program, UnfitProgramError

BOX, PAUSE = Path("/usr/bin/busybox"), Path("/usr/bin/catatonit")


class Programs:
    """Programs that can be read, except those in `unfit`; busybox lists two commands."""

    def __init__(self) -> None:
        self.unfit: set[Path] = set()
        self.list_error = ""

    async def catalogue(self, busybox: Path | None, catatonit: Path | None) -> Any:
        def build(box: Any, pause: Any) -> Any:
            return box, pause

        return await catalogue(busybox, catatonit, read=self._read, run=self._run, build=build)

    def _read(self, path: Path, package: str) -> Program:
        if path in self.unfit:
            raise UnfitProgramError(path, "needs libraries", package)
        return Program(str(path).encode(), Platform("amd64"))

    async def _run(self, argv: list[Any]) -> Any:
        assert argv == [BOX, "--list"]
        if self.list_error:
            raise CommandError([str(word) for word in argv], self.list_error)
        return SimpleNamespace(text="sh\nls\n")


@pytest.fixture
def programs() -> Programs:
    return Programs()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.getMessage()}: {vars(record)['moorage_fields']['reason']}"
        for record in caplog.records
    ]


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
    list_error: str, images: Any, warning: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    programs.unfit = {unfit} if unfit else set()
    programs.list_error = list_error
    assert await programs.catalogue(busybox, catatonit) == images
    assert warned(caplog) == ([warning] if warning else [])


async def test_without_a_usable_program_each_is_named(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    programs.list_error = "exit status 1"
    with pytest.raises(NoPauseError) as failed:
        await programs.catalogue(BOX, None)
    assert str(failed.value) == (
        "no image for pods' sandboxes can be made: catatonit is not on PATH; a static one is "
        f"needed: apt-get install catatonit; `{BOX} --list`: exit status 1"
    )
    assert warned(caplog) == []
