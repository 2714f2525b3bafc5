"""Shims in a mount namespace of their own, as Kata's: what is mounted later does not reach them."""

from __future__ import annotations

import shutil

import pytest

from moorage.linux.mounts import current_mounts, mounts_below
from moorage.wire.cri import pb
from tests.engine.whole.engines import Caller, RunningEngine, eventually

pytestmark = [pytest.mark.runtime]

SHIM = "containerd-shim-runc-v2"
_HANDLER = """adapter = "shim"
binary = "{binary}"
snapshotter = "{snapshotter}"
[options]
runtime_type = "io.containerd.runc.v2"
needs_sandbox = true
"""


@pytest.mark.parametrize("snapshotter", ["overlayfs", "native"])
async def test_containers_have_their_files_although_the_shim_does_not_see_our_mounts(
    caller: Caller, engine: RunningEngine, snapshotter: str
) -> None:
    """runc's shim, which stays in the namespace that it is started in: a real one."""
    shim = shutil.which(SHIM)
    if shim is None:
        pytest.skip(f"{SHIM} is not installed")
    apart = engine.program(
        f"apart_{snapshotter}", f'exec unshare --mount --propagation private {shim} "$@"'
    )
    file = engine.handlers / f"{snapshotter}.toml"
    file.write_text(_HANDLER.format(binary=apart, snapshotter=snapshotter))

    async def is_offered() -> bool:
        status = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        return snapshotter in {handler.name for handler in status.runtime_handlers}

    await eventually(is_offered, f"handler {snapshotter}")
    pod = await caller.run_pod(snapshotter)
    container = await caller.run(pod, "sh", "-c", "echo mine > /written; exec sleep 1000")
    listed = await caller.exec(container, "ls", "/bin/busybox", "/written")
    assert listed.stdout == b"/bin/busybox\n/written\n"
    second = await caller.run(pod, "sleep", "1000", name="second")
    assert (await caller.exec(second, "ls", "/written")).exit_code != 0
    await caller.stop(second)
    await caller.stop(container)
    for one in (container, second):
        await caller.remove(one)
    assert not [mount for mount in mounts_below(engine.root, current_mounts())
                if mount.point.name == "rootfs"]  # fmt: skip
