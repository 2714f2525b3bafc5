"""What a shim is given for a task: runc's kin and others, each in its own message."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.program import TaskOptions, pack_json
from moorage.engine.handlers.definition import CgroupDriver, ShimOptions
from tests.engine.handlers.programs import program

RUNC = "io.containerd.runc.v2"
KATA = "io.containerd.kata.v2"


def options(
    handler: ShimOptions, directory: Path, driver: CgroupDriver = CgroupDriver.CGROUPFS
) -> TaskOptions:
    return TaskOptions(handler, driver, str(directory), Path("/state"))


def runc_options(task_options: TaskOptions) -> pb.RuncOptions:
    packed = task_options.of_task()
    assert packed is not None
    assert packed.type_url == "containerd.runc.v1.Options"
    return pb.RuncOptions.FromString(packed.value)


@pytest.mark.parametrize(("named", "expected"), [(None, "runc"), ("crun", "crun")])
def test_runcs_shim_gets_the_path_of_the_handlers_runtime(
    tmp_path: Path, named: str | None, expected: str
) -> None:
    for name in ("runc", "crun"):
        program(tmp_path, name, "exit 0")
    task_options = options(ShimOptions(runtime_type=RUNC, runtime_binary=named), tmp_path)
    assert runc_options(task_options).binary_name == str(tmp_path / expected)


@pytest.mark.parametrize("named", [None, "crun", "/absent/crun"])
def test_a_runtime_that_is_not_there_is_an_error_and_never_an_empty_name(
    tmp_path: Path, named: str | None
) -> None:
    task_options = options(ShimOptions(runtime_type=RUNC, runtime_binary=named), tmp_path)
    with pytest.raises(AdapterError, match=f"the runtime {named or 'runc'} behind the shim"):
        task_options.of_task()


def test_file_without_execute_permission_is_no_runtime(tmp_path: Path) -> None:
    program(tmp_path, "crun", "exit 0").chmod(0o644)
    task_options = options(ShimOptions(runtime_type=RUNC, runtime_binary="crun"), tmp_path)
    with pytest.raises(AdapterError, match="crun"):
        task_options.of_task()


@pytest.mark.parametrize("is_set", [False, True])
def test_each_option_of_runcs_shim_is_its_own(tmp_path: Path, is_set: bool) -> None:
    program(tmp_path, "runc", "exit 0")
    pivot = options(ShimOptions(runtime_type=RUNC, no_pivot_root=is_set), tmp_path)
    keyring = options(ShimOptions(runtime_type=RUNC, no_new_keyring=is_set), tmp_path)
    driver = CgroupDriver.SYSTEMD if is_set else CgroupDriver.CGROUPFS
    systemd = options(ShimOptions(runtime_type=RUNC), tmp_path, driver)
    flags = [
        (options.no_pivot_root, options.no_new_keyring, options.systemd_cgroup)
        for options in map(runc_options, (pivot, keyring, systemd))
    ]
    assert flags == [(is_set, False, False), (False, is_set, False), (False, False, is_set)]


@pytest.mark.parametrize(("root", "expected"), [(None, "/state"), ("/mine", "/mine")])
def test_the_runtimes_state_is_where_the_handler_says(
    tmp_path: Path, root: str | None, expected: str
) -> None:
    program(tmp_path, "runc", "exit 0")
    task_options = options(ShimOptions(runtime_type=RUNC, root=root), tmp_path)
    assert runc_options(task_options).root == expected


@pytest.mark.parametrize(
    ("configuration", "kind"),
    [("/etc/kata.toml", "kata.options"), ("/etc/kata.toml", None), (None, "kata.options")],
)
def test_other_shims_get_their_configuration_and_its_kind(
    tmp_path: Path, configuration: str | None, kind: str | None
) -> None:
    handler = ShimOptions(
        runtime_type=KATA, config_path=configuration, options_type_url=kind, runtime_binary="absent"
    )
    packed = options(handler, tmp_path).of_task()
    assert packed is not None
    assert packed.type_url == "runtimeoptions.v1.Options"
    parsed = pb.RuntimeOptions.FromString(packed.value)
    assert (parsed.config_path, parsed.type_url) == (configuration or "", kind or "")


def test_other_shims_without_options_go_by_their_own_defaults(tmp_path: Path) -> None:
    assert options(ShimOptions(runtime_type=KATA), tmp_path).of_task() is None


@pytest.mark.parametrize("keeps_running", [False, True])
def test_only_runcs_shim_has_options_for_a_checkpoint(tmp_path: Path, keeps_running: bool) -> None:
    kata = options(ShimOptions(runtime_type=KATA), tmp_path)
    assert kata.checkpoint(keeps_running=keeps_running) is None
    packed = options(ShimOptions(runtime_type=RUNC), tmp_path).checkpoint(
        keeps_running=keeps_running
    )
    assert packed is not None
    assert packed.type_url == "containerd.runc.v1.CheckpointOptions"
    assert pb.RuncCheckpointOptions.FromString(packed.value).exit is not keeps_running


def test_a_document_is_packed_as_it_is() -> None:
    packed = pack_json("kind", b"{}")
    assert (packed.type_url, packed.value) == ("kind", b"{}")
