"""The root file system of a pod's init: which program is in it, and what else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moorage.engine.errors import FailedError
from moorage.engine.infra import InfraProcess
from moorage.linux.program import Platform, Program, UnfitProgramError


@pytest.fixture
def infra(tmp_path: Path) -> InfraProcess:
    """Programs whose text says so are dynamic."""
    (tmp_path / "bin").mkdir()

    def read(path: Path, package: str) -> Program:
        content = path.read_bytes()
        if content == b"dynamic":
            raise UnfitProgramError(path, "needs libraries", package)
        return Program(content, Platform("amd64"))

    return InfraProcess(tmp_path / "rootfs", str(tmp_path / "bin"), read)


def install(infra: InfraProcess, name: str, text: str = "static") -> None:
    path = Path(infra.search_path, name)
    path.write_text(text)
    path.chmod(0o755)


BUSYBOX = ("/init", "sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 2147483 & wait; done")


@pytest.mark.parametrize(
    ("programs", "argv", "content"),
    [
        ({"catatonit": "c", "busybox": "b"}, ("/init", "-P"), "c"),
        ({"busybox": "b"}, BUSYBOX, "b"),
        ({"catatonit": "dynamic", "busybox": "b"}, BUSYBOX, "b"),
    ],
)
def test_the_first_program_that_can_be_alone_is_its_init(
    infra: InfraProcess, programs: dict[str, str], argv: tuple[str, ...], content: str
) -> None:
    for name, text in programs.items():
        install(infra, name, text)
    assert infra.prepare() == argv
    assert (infra.rootfs / "init").read_text() == content
    result = {str(path.relative_to(infra.rootfs)): path for path in infra.rootfs.rglob("*")}
    assert set(result) == {
        "dev", "etc", "proc", "sys", "etc/hostname", "etc/hosts", "etc/resolv.conf", "init",
    }  # fmt: skip
    for name in ("dev", "etc", "proc", "sys", "init"):
        assert result[name].stat().st_mode & 0o777 == 0o755
    assert all(result[name].is_dir() for name in ("dev", "etc", "proc", "sys"))


def test_a_program_that_is_there_may_be_running_and_is_left_or_replaced_whole(
    infra: InfraProcess,
) -> None:
    install(infra, "catatonit", "one")
    infra.prepare()
    init = infra.rootfs / "init"
    before = init.stat().st_ino
    infra.prepare()
    assert init.stat().st_ino == before
    install(infra, "catatonit", "two")
    with init.open() as running:
        infra.prepare()
        assert running.read() == "one"
    assert init.read_text() == "two"


def test_missing_programs_are_named_with_their_packages(infra: InfraProcess) -> None:
    install(infra, "busybox", "dynamic")
    with pytest.raises(FailedError) as failed:
        infra.prepare()
    text = str(failed.value)
    assert "catatonit is not on PATH (apt-get install catatonit); " in text
    assert "busybox needs libraries; a static one is needed: apt-get install busybox-static" in text
    assert not infra.rootfs.exists()


def test_sandboxes_created_at_once_share_one_root_file_system(infra: InfraProcess) -> None:
    install(infra, "busybox", "static" * 500_000)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            (infra.rootfs / "init").unlink(missing_ok=True)
            preparations = [threads.submit(infra.prepare) for _ in range(8)]
            assert {preparation.result() for preparation in preparations} == {BUSYBOX}
