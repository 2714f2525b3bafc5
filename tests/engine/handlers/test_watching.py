"""Handler files that come, change and go while their directories are watched: real ones."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers import Catalogue, HandlerDirectory, Machine, OfferedHandler
from tests.engine.handlers.programs import definition, program, runtime

MACHINE = Machine(kernel=(6, 1), has_kvm=False)
_DEADLINE_S = 5.0


class Watched:
    """A watched pair of directories, and every catalogue that came into force."""

    def __init__(self, root: Path) -> None:
        self.first = root / "etc" / "handlers.d"
        self.second = root / "data" / "handlers.d"
        self.bin = root / "bin"
        self.machine = MACHINE
        self.seen: list[Catalogue] = []
        self._changed = asyncio.Event()

    def open(
        self, *, is_generating: bool = False, deadline_s: float = 0.5, **more: Any
    ) -> HandlerDirectory:
        directory = HandlerDirectory(
            (self.first, self.second),
            path=str(self.bin),
            read_machine=lambda: self.machine,
            generate_into=self.second if is_generating else None,
            query_deadline_s=deadline_s,
            **more,
        )
        directory.add_listener(self._on_change)
        return directory

    def _on_change(self, _old: Catalogue, new: Catalogue) -> None:
        self.seen.append(new)
        self._changed.set()

    async def until(self, holds: Callable[[Catalogue], bool]) -> Catalogue:
        """The first catalogue of which something holds; within a deadline."""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while not (self.seen and holds(self.seen[-1])):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"not within {_DEADLINE_S} s; last seen: {self.seen[-1:]}")
        return self.seen[-1]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    result = Watched(tmp_path)
    runtime(result.bin, "runc", "1.2.0")
    runtime(result.bin, "crun", "1.15", has_features=False)
    result.second.mkdir(parents=True)
    return result


@pytest.fixture
async def handlers(watched: Watched) -> AsyncIterator[HandlerDirectory]:
    definition(watched.second, "runc", "runc")
    async with watched.open() as directory:
        yield directory


def offered(catalogue: Catalogue, name: str) -> OfferedHandler:
    result = catalogue.find(name)
    assert result is not None, sorted(catalogue.handlers)
    return result


async def test_what_is_there_at_the_start_is_in_force_and_asked(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    runc = offered(handlers.catalogue, "runc")
    assert runc.is_available
    assert runc.version == "1.2.0"
    assert runc.program == watched.bin / "runc"
    assert runc.features.names == ("recursiveReadOnlyMounts", "userNamespaces")


async def test_a_file_that_comes_counts_at_once(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    definition(watched.second, "crun", "crun")
    await watched.until(lambda catalogue: "crun" in catalogue.handlers)


async def test_a_file_that_goes_takes_its_handler_along(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    (watched.second / "runc.toml").unlink()
    await watched.until(lambda catalogue: not catalogue.handlers)


async def test_an_editor_that_renames_over_the_old_file_is_seen(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    aside = definition(watched.second.parent / "elsewhere", "runc", watched.bin / "crun")
    os.replace(aside, watched.second / "runc.toml")
    await watched.until(lambda catalogue: offered(catalogue, "runc").version == "1.15")


async def test_a_broken_file_leaves_the_former_version_in_force(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    before = handlers.catalogue.handlers
    (watched.second / "runc.toml").write_text('adapter = "oci"\nbinary = 3\n')
    broken = await watched.until(lambda catalogue: bool(catalogue.complaints))
    (complaint,) = broken.complaints
    assert (complaint.line, complaint.has_former) == (2, True)
    assert "its previous version stays in effect" in str(complaint)
    assert broken.handlers == before
    definition(watched.second, "runc", "crun")
    repaired = await watched.until(lambda catalogue: not catalogue.complaints)
    assert offered(repaired, "runc").version == "1.15"


async def test_a_broken_file_without_a_former_version_is_no_handler(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    definition(watched.second, "crun", "crun")
    watched.first.mkdir(parents=True)
    override = definition(watched.first, "crun", "crun", more="nonsense = 1\n")
    os.utime(override, (1, 1))
    async with watched.open() as handlers:
        assert handlers.catalogue.find("crun") is None
        assert [complaint.path for complaint in handlers.catalogue.complaints] == [override]
        await handlers.refresh()
    refused = [record for record in caplog.records if record.getMessage() == "handler file refused"]
    assert len(refused) == 1


async def test_a_file_being_written_is_not_complained_of(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    with (watched.second / "crun.toml").open("w") as file:
        file.write('adapter = "oci"\n')
        file.flush()
        # Another file's change makes everything be read, the unfinished one too.
        definition(watched.second, "other", "crun")
        await watched.until(lambda catalogue: "other" in catalogue.handlers)
        file.write('binary = "crun"\n')
    await watched.until(lambda catalogue: "crun" in catalogue.handlers)
    assert not any(catalogue.complaints for catalogue in watched.seen)


async def test_a_directory_that_comes_later_is_seen_and_overrides(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    watched.first.mkdir(parents=True)
    definition(watched.first, "runc", "crun")
    await watched.until(lambda catalogue: offered(catalogue, "runc").version == "1.15")
    shutil.rmtree(watched.first.parent)
    await watched.until(lambda catalogue: offered(catalogue, "runc").version == "1.2.0")
    watched.first.mkdir(parents=True)
    definition(watched.first, "again", "crun")
    await watched.until(lambda catalogue: "again" in catalogue.handlers)


async def test_a_directory_swapped_by_a_link_is_seen(watched: Watched) -> None:
    real = watched.first.parent
    for version, binary in (("one", "runc"), ("two", "crun")):
        (real / version).mkdir(parents=True)
        definition(real / version, "x", binary)
    watched.first.symlink_to("one")
    async with watched.open():
        swapped = real / "swap"
        swapped.symlink_to("two")
        os.replace(swapped, watched.first)
        await watched.until(lambda catalogue: offered(catalogue, "x").version == "1.15")


async def test_a_disabled_handler_hides_the_one_it_overrides(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    watched.first.mkdir(parents=True)
    definition(watched.first, "runc", "runc", more="enabled = false\n")
    await watched.until(lambda catalogue: not catalogue.handlers)


async def test_an_upgraded_program_is_asked_again(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    runtime(watched.bin, "runc", "1.3.0")
    await watched.until(lambda catalogue: offered(catalogue, "runc").version == "1.3.0")


async def test_a_program_that_goes_and_comes_back_is_noticed(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    (watched.bin / "runc").unlink()
    gone = await watched.until(lambda catalogue: not offered(catalogue, "runc").is_available)
    verdict = offered(gone, "runc").verdict
    assert verdict.reason == "runc is not on PATH"
    assert verdict.remedy == (f"apt-get install runc, or correct {watched.second / 'runc.toml'}")
    runtime(watched.bin, "runc", "1.4.0")
    await watched.until(lambda catalogue: offered(catalogue, "runc").is_available)


async def test_a_program_that_hangs_holds_no_other_handler_up(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    del handlers
    program(watched.bin, "youki", "exec sleep 60")
    definition(watched.second, "youki", "youki")
    definition(watched.second, "crun", "crun")
    await watched.until(lambda catalogue: "crun" in catalogue.handlers)
    hung = await watched.until(
        lambda catalogue: "does not answer" in offered(catalogue, "youki").verdict.reason
    )
    assert offered(hung, "youki").verdict.reason.endswith("no answer within 0.5 s")
    assert offered(hung, "crun").is_available


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", "it reports no version, so it is not a container runtime"),
        ("echo cannot find a library >&2; exit 127", "cannot find a library"),
    ],
)
async def test_program_other_than_a_runtime_is_unavailable(
    watched: Watched, script: str, reason: str
) -> None:
    program(watched.bin, "liar", script)
    definition(watched.second, "liar", watched.bin / "liar")
    async with watched.open() as handlers:
        assert reason in offered(handlers.catalogue, "liar").verdict.reason


async def test_a_machines_lack_is_the_reason_and_counts_again_at_a_refresh(
    watched: Watched,
) -> None:
    watched.machine = replace(MACHINE, is_hugetlb_apart=True)
    definition(watched.second, "crun", "crun")
    shim = 'adapter = "shim"\nbinary = "containerd-shim-kata-v2"\n[options]\n'
    program(watched.bin, "containerd-shim-kata-v2", "echo 3.2.0")
    (watched.second / "kata.toml").write_text(f'{shim}runtime_type = "io.containerd.kata.v2"\n')
    async with watched.open() as handlers:
        assert "hugetlb" in offered(handlers.catalogue, "crun").verdict.reason
        assert "/dev/kvm" in offered(handlers.catalogue, "kata").verdict.reason
        watched.machine = replace(MACHINE, has_kvm=True)
        again = await handlers.refresh()
        assert all(handler.is_available for handler in again)


async def test_a_shim_for_runcs_kin_is_worth_what_the_runtime_behind_it_is(
    watched: Watched,
) -> None:
    watched.machine = replace(MACHINE, is_hugetlb_apart=True)
    program(watched.bin, "containerd-shim-runc-v2", "echo containerd-shim-runc-v2")
    for name in ("runc", "crun"):
        (watched.second / f"{name}-shim.toml").write_text(
            'adapter = "shim"\nbinary = "containerd-shim-runc-v2"\n[options]\n'
            f'runtime_type = "io.containerd.runc.v2"\nruntime_binary = "{name}"\n'
        )
    async with watched.open() as handlers:
        runc = offered(handlers.catalogue, "runc-shim")
        assert runc.features.names == ("recursiveReadOnlyMounts", "userNamespaces")
        assert "hugetlb" in offered(handlers.catalogue, "crun-shim").verdict.reason


async def test_files_are_written_for_what_is_found_and_never_over_others(
    watched: Watched,
) -> None:
    watched.first.mkdir(parents=True)
    definition(watched.first, "crun", "runc")
    async with watched.open(is_generating=True) as handlers:
        assert sorted(handlers.catalogue.handlers) == ["crun", "runc"]
        assert sorted(path.name for path in watched.second.iterdir()) == ["runc.toml"]
        edited = (watched.second / "runc.toml").read_text() + "default = true\n"
        (watched.second / "runc.toml").write_text(edited)
        await watched.until(lambda catalogue: offered(catalogue, "runc").definition.is_default)
    async with watched.open(is_generating=True) as handlers:
        assert (watched.second / "runc.toml").read_text() == edited


async def test_a_runtime_installed_later_gets_its_file(watched: Watched) -> None:
    async with watched.open(is_generating=True):
        (watched.second / "crun.toml").unlink()
        await watched.until(lambda catalogue: "crun" not in catalogue.handlers)
        program(watched.bin, "runsc", "echo runsc version release-20221026.0")
        result = await watched.until(lambda catalogue: "gvisor" in catalogue.handlers)
        # A file that was taken away meanwhile stays away.
        assert sorted(result.handlers) == ["gvisor", "runc", "runsc"]


async def test_the_default_is_the_one_that_says_so_else_a_plain_runtime(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    definition(watched.second, "crun", "crun")
    await watched.until(lambda catalogue: "crun" in catalogue.handlers)
    assert handlers.catalogue.default_name == "runc"
    assert handlers.catalogue.find("") == handlers.catalogue.find("runc")
    definition(watched.second, "crun", "crun", more="default = true\n")
    await watched.until(lambda catalogue: catalogue.default_name == "crun")
    definition(watched.second, "zeta", "crun", more="default = true\n")
    rivals = await watched.until(lambda catalogue: bool(catalogue.complaints))
    assert rivals.default_name == "crun"
    assert "is already the default" in rivals.complaints[0].problem


async def test_a_listener_that_fails_ends_the_watching_loudly(watched: Watched) -> None:
    class ListenerError(Exception):
        pass

    def fails(_old: Catalogue, _new: Catalogue) -> None:
        raise ListenerError

    async def watch() -> None:
        async with watched.open() as handlers, asyncio.timeout(_DEADLINE_S):
            handlers.add_listener(fails)
            definition(watched.second, "crun", "crun")
            await asyncio.get_running_loop().create_future()

    with pytest.raises(ExceptionGroup) as raised:
        await watch()
    assert raised.group_contains(ListenerError)


async def test_a_crowd_of_changes_ends_in_the_last(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    for number in range(300):
        definition(watched.second, f"h{number % 7}", "crun", more=f'snapshotter = "s{number}"\n')
        if number % 50 == 0:
            await asyncio.sleep(0)
    await watched.until(
        lambda catalogue: (
            len(catalogue.handlers) == 8
            and offered(catalogue, "h5").definition.snapshotter == "s299"
        )
    )
    assert not handlers.catalogue.complaints


async def test_a_file_that_others_can_write_is_refused_and_its_former_self_stays(
    watched: Watched, handlers: HandlerDirectory
) -> None:
    file = watched.second / "runc.toml"
    file.chmod(0o666)
    file.write_text('adapter = "oci"\nbinary = "/tmp/evil"\n')
    catalogue = await watched.until(lambda catalogue: bool(catalogue.complaints))
    (complaint,) = catalogue.complaints
    assert str(complaint) == (
        f"{file}: it can be written by others (mode 0666) (inspect it, then chmod go-w {file}); "
        "its previous version stays in effect"
    )
    assert offered(catalogue, "runc").program == watched.bin / "runc"
    file.chmod(0o644)
    definition(watched.second, "runc", "runc")
    await watched.until(lambda catalogue: not catalogue.complaints)
    del handlers


async def test_every_file_of_a_directory_that_others_can_write_is_refused(watched: Watched) -> None:
    definition(watched.second, "runc", "runc")
    watched.second.chmod(0o777)
    async with watched.open() as directory:
        assert directory.catalogue.handlers == {}
        # A file as young as this might still be in the making.
        (complaint,) = (
            await watched.until(lambda catalogue: bool(catalogue.complaints))
        ).complaints
    assert str(watched.second) in complaint.problem
    assert "mode 0777" in complaint.problem


@pytest.mark.parametrize("level", ["program", "directory", "target of a link"])
async def test_a_program_that_others_can_write_is_not_even_asked(
    watched: Watched, tmp_path: Path, level: str
) -> None:
    result = tmp_path / "asked"
    program(watched.bin, "runc", f"touch {result}; echo runc version 1.2.0")
    definition(watched.second, "runc", "runc")
    place = {"program": watched.bin / "runc", "directory": watched.bin}.get(level)
    if place is None:
        place = tmp_path / "elsewhere"
        place.mkdir()
        (watched.bin / "runc").rename(place / "runc")
        (watched.bin / "runc").symlink_to(place / "runc")
    place.chmod(0o777)
    async with watched.open() as directory:
        runc = offered(directory.catalogue, "runc")
        assert not runc.is_available
        assert str(place) in runc.verdict.reason
        assert runc.verdict.remedy == f"inspect it, then chmod go-w {place}"
        assert not result.exists()
        place.chmod(0o755)
        await directory.refresh()
        assert offered(directory.catalogue, "runc").is_available
    assert result.exists()


async def test_generated_files_are_their_owners_alone(watched: Watched) -> None:
    before = os.umask(0)
    try:
        async with watched.open(is_generating=True) as directory:
            assert directory.catalogue.complaints == ()
            assert "runc" in directory.catalogue.handlers
    finally:
        os.umask(before)
    assert (watched.second / "runc.toml").stat().st_mode & 0o777 == 0o600


async def test_a_program_that_is_slow_is_offered_once_it_has_answered(watched: Watched) -> None:
    definition(watched.second, "runc", "runc")
    gate = watched.bin / "gate"
    os.mkfifo(gate)
    async with watched.open() as handlers:
        # It answers when the test opens the gate, which is after the first look.
        program(watched.bin, "slow", f"cat {gate} > /dev/null; echo slow version 1.0")
        definition(watched.second, "slow", "slow")
        pending = await watched.until(
            lambda catalogue: (
                "slow" in catalogue.handlers
                and "not completed yet" in offered(catalogue, "slow").verdict.reason
            )
        )
        assert not offered(pending, "slow").is_available
        assert offered(pending, "runc").is_available
        assert not offered(handlers.catalogue, "slow").is_available
        await asyncio.to_thread(gate.write_text, "")
        result = await watched.until(
            lambda catalogue: "not completed yet" not in offered(catalogue, "slow").verdict.reason
        )
        assert offered(result, "runc").is_available


async def test_who_needs_a_handler_can_wait_for_its_programs_first_answer(watched: Watched) -> None:
    gate = watched.bin / "gate"
    os.mkfifo(gate)
    async with watched.open() as handlers:
        program(watched.bin, "slow", f"cat {gate} > /dev/null; echo slow version 1.0")
        definition(watched.second, "slow", "slow")
        await watched.until(lambda catalogue: "slow" in catalogue.handlers)
        waiting = asyncio.create_task(handlers.wait_answered("slow"))
        # Others are not held up, whether they are there or not.
        for name in ("absent", ""):
            await handlers.wait_answered(name)
        assert not waiting.done()
        await asyncio.to_thread(gate.write_text, "")
        await waiting
        assert "not completed yet" not in offered(handlers.catalogue, "slow").verdict.reason


async def test_a_handler_stays_available_while_its_new_program_is_asked(watched: Watched) -> None:
    definition(watched.second, "busy", "runc")
    definition(watched.second, "upgraded", "crun")
    gate = watched.bin / "gate"
    waiting = f"while [ ! -e {gate} ]; do sleep 0.01; done"
    async with watched.open(deadline_s=60) as handlers:
        program(watched.bin, "slow", f"{waiting}; echo slow version 1.0")
        program(watched.bin, "crun", f"{waiting}; echo crun version 2.0")
        definition(watched.second, "busy", "slow")
        definition(watched.second, "other", "runc")
        seen = await watched.until(lambda catalogue: "other" in catalogue.handlers)
        asked = [offered(seen, name) for name in ("busy", "upgraded")]
        assert [(one.version, one.is_available) for one in asked] == [
            ("1.2.0", True),
            ("1.15", True),
        ]
        gate.touch()
        await watched.until(
            lambda catalogue: (
                [offered(catalogue, name).version for name in ("busy", "upgraded")]
                == ["1.0", "2.0"]
            )
        )
        assert all(handler.is_available for handler in handlers.catalogue)


async def test_what_was_there_before_counts_only_while_it_is_fit(watched: Watched) -> None:
    """While the new program is asked: the former one is removed, or others may write to it."""
    gone = runtime(watched.bin, "gone", "1.0")
    spoilt = runtime(watched.bin, "spoilt", "1.0")
    for name in ("gone", "spoilt"):
        definition(watched.second, name, name)
    gate = watched.bin / "gate"
    async with watched.open(deadline_s=60) as handlers:
        assert all(handler.is_available for handler in handlers.catalogue)
        program(watched.bin, "slow", f"while [ ! -e {gate} ]; do sleep 0.01; done; echo slow 1.0")
        for name in ("gone", "spoilt"):
            definition(watched.second, name, "slow")
        gone.unlink()
        spoilt.chmod(0o777)
        await watched.until(
            lambda catalogue: not any(handler.is_available for handler in catalogue)
        )
        gate.touch()
        await watched.until(lambda catalogue: all(handler.is_available for handler in catalogue))


async def test_a_burst_is_over_as_soon_as_nothing_more_comes(watched: Watched) -> None:
    """Not only when the longest that a burst may take has passed."""
    async with watched.open(patience_s=3600.0):
        for name in ("one", "two"):
            definition(watched.second, name, "crun")

            def has_come(catalogue: Catalogue, name: str = name) -> bool:
                return name in catalogue.handlers

            await watched.until(has_come)
