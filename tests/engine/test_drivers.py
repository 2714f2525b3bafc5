"""Which adapter a definition leads to, and how its runtime is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.engine.drivers import Drivers, handler_traits, with_cgroup_driver
from moorage.engine.errors import FailedError
from moorage.engine.handlers.adapters.oci import OciAdapter
from moorage.engine.handlers.adapters.runsc import RunscAdapter, runsc_options
from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter
from moorage.engine.handlers.definition import (
    CgroupDriver,
    HandlerDefinition,
    RunscOptions,
    parse_definition,
)
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.paths import EnginePaths
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.reaper import Reaper

CGROUPS = Cgroups(Layout.ABSENT)
PATHS = EnginePaths(Path("/data"), Path("/run/e"))
OCI = 'adapter = "oci"\nbinary = "runc"\n'
RUNSC = 'adapter = "runsc"\nbinary = "runsc"\n'
SHIM = 'adapter = "shim"\nbinary = "shim"\noptions.runtime_type = "io.containerd.kata.v2"\n'


def definition(text: str) -> HandlerDefinition:
    return parse_definition(Path("/h/one.toml"), text.encode())


@pytest.fixture
def drivers() -> Drivers:
    return Drivers(PATHS, Path("/usr/bin/conmon"), Reaper(), CGROUPS)


@pytest.mark.parametrize(
    ("more", "options", "create"),
    [
        ("", (f"--root={PATHS.runtimes}/crun",), ()),
        ('options.root = "/r"', ("--root=/r",), ()),
        (
            'cgroup_driver = "systemd"\noptions.global_arguments = ["--debug"]',
            (f"--root={PATHS.runtimes}/crun", "--systemd-cgroup", "--debug"),
            (),
        ),
        ("options.no_pivot_root = true", (f"--root={PATHS.runtimes}/crun",), ("--no-pivot",)),
        (
            "options.no_new_keyring = true",
            (f"--root={PATHS.runtimes}/crun",),
            ("--no-new-keyring",),
        ),
    ],
)
def test_a_runtime_with_runcs_command_line(
    drivers: Drivers, more: str, options: tuple[str, ...], create: tuple[str, ...]
) -> None:
    adapter: Any = drivers.adapter(definition(OCI + more), Path("/usr/bin/crun"))
    assert isinstance(adapter, OciAdapter)
    runtime = adapter.runtime
    assert (runtime.program, runtime.options) == (Path("/usr/bin/crun"), options)
    assert runtime.create_arguments == create
    assert adapter.conmon.program == Path("/usr/bin/conmon")
    assert adapter.conmon.exits == PATHS.exits
    assert adapter.reaper is drivers.reaper
    assert adapter.scratch == PATHS.scratch


@pytest.mark.parametrize("ignores", [True, False])
def test_gvisor(drivers: Drivers, ignores: bool) -> None:
    more = f'options.platform = "ptrace"\noptions.ignore_cgroups = {str(ignores).lower()}\n'
    adapter: Any = drivers.adapter(definition(RUNSC + more), Path("/usr/bin/runsc"))
    assert isinstance(adapter, RunscAdapter)
    ignoring = ("--ignore-cgroups",) if ignores else ()
    flags = (f"--root={PATHS.runtimes}/runsc", "--platform=ptrace", *ignoring)
    command: Any = adapter.command_line
    assert (command.program, command.options) == (Path("/usr/bin/runsc"), flags)
    assert adapter.cgroups is (CGROUPS if ignores else None)
    assert adapter.scratch == PATHS.scratch


def test_a_shim_needs_no_conmon() -> None:
    drivers = Drivers(PATHS, None, Reaper(), CGROUPS)
    adapter: Any = drivers.adapter(definition(SHIM), Path("/usr/bin/shim"))
    assert isinstance(adapter, ShimAdapter)
    for text in (OCI, RUNSC):
        with pytest.raises(FailedError, match="conmon is not on PATH: apt-get install conmon"):
            drivers.adapter(definition(text), Path("/usr/bin/x"))


def test_each_definition_and_program_has_one_adapter(drivers: Drivers) -> None:
    one = drivers.adapter(definition(OCI), Path("/a"))
    assert drivers.adapter(definition(OCI), Path("/a")) is one
    others = [
        drivers.adapter(definition(OCI), Path("/b")),
        drivers.adapter(definition(f"{OCI}default = true\n"), Path("/a")),
    ]
    assert one not in others
    assert others[0] is not others[1]


async def test_all_are_let_go_of_at_the_end(drivers: Drivers) -> None:
    closed: list[object] = []
    async with drivers as entered:
        assert entered is drivers
        for place in ("/a", "/b"):
            adapter: Any = drivers.adapter(definition(OCI), Path(place))

            async def close(place: str = place) -> None:
                closed.append(place)

            adapter.close = close
    assert closed == ["/a", "/b"]


@pytest.mark.parametrize(
    ("text", "default", "driver"),
    [
        (OCI, CgroupDriver.CGROUPFS, CgroupDriver.CGROUPFS),
        (OCI, CgroupDriver.SYSTEMD, CgroupDriver.SYSTEMD),
        (SHIM, CgroupDriver.SYSTEMD, CgroupDriver.SYSTEMD),
        (RUNSC, CgroupDriver.SYSTEMD, CgroupDriver.SYSTEMD),
        (f"{RUNSC}\noptions.ignore_cgroups = true\n", CgroupDriver.SYSTEMD, CgroupDriver.CGROUPFS),
        (f'cgroup_driver = "cgroupfs"\n{OCI}', CgroupDriver.SYSTEMD, CgroupDriver.CGROUPFS),
        (f'cgroup_driver = "systemd"\n{OCI}', CgroupDriver.CGROUPFS, CgroupDriver.SYSTEMD),
    ],
)
def test_a_sandbox_has_the_engines_cgroup_driver_unless_its_handlers_file_names_one(
    text: str, default: CgroupDriver, driver: CgroupDriver
) -> None:
    assert with_cgroup_driver(definition(text), default).cgroup_driver is driver


def test_gvisor_has_systemd_make_its_cgroups_with_that_driver() -> None:
    flags = runsc_options(RunscOptions(), Path("/r"), has_systemd_cgroups=True)
    assert "--systemd-cgroup" in flags
    assert "--systemd-cgroup" not in runsc_options(RunscOptions(), Path("/r"))


@pytest.mark.parametrize(
    ("text", "is_virtualised", "joins_unsaid"),
    [(OCI, False, False), (RUNSC, True, True), (SHIM, True, False)],
)
def test_what_a_definition_means_for_a_spec(
    text: str, is_virtualised: bool, joins_unsaid: bool
) -> None:
    traits = handler_traits(definition(text), HandlerFeatures(user_namespaces=True))
    assert (traits.is_virtualised, traits.has_processes_joined_unsaid) == (
        is_virtualised,
        joins_unsaid,
    )
    assert (traits.has_recursive_read_only, traits.has_user_namespaces) == (False, True)
    assert (traits.name, traits.cgroup_driver) == ("one", "cgroupfs")
    assert traits.has_host_devices_when_privileged
    assert (traits.annotation_patterns, traits.container_annotation_patterns) == ((), ())
    more = (
        'annotations = ["a/*"]\ncontainer_annotations = ["c/*"]\ndefault_seccomp = "unconfined"\n'
        'cgroup_driver = "systemd"\nprivileged_without_host_devices = true\n'
    )
    # Options come last in a document with a table of them.
    head, _, options = text.partition("options.")
    written = f"{head}{more}" + (f"options.{options}" if options else "")
    traits = handler_traits(definition(written), HandlerFeatures(recursive_read_only_mounts=True))
    assert (traits.annotation_patterns, traits.container_annotation_patterns) == (
        ("a/*",),
        ("c/*",),
    )
    assert (traits.default_seccomp, traits.cgroup_driver) == ("unconfined", "systemd")
    assert not traits.has_host_devices_when_privileged
    assert (traits.has_recursive_read_only, traits.has_user_namespaces) == (True, False)
