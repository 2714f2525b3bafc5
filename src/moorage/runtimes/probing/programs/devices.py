"""Devices: each of those that a container was given is opened."""

from __future__ import annotations

from moorage.runtimes.probing.programs.script import AT_FDCWD, Script, text_of

DIRECTORY = "/probe-devices"
CHARACTER_DEVICE = "/dev/zero"
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128")
BLOCK_DEVICES = ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda", "/dev/loop0")
"""Devices of which a probe gets the first that the node has."""

_READ_ONLY_NONBLOCKING = 0o4000


def write(script: Script) -> None:
    """Write the program. Nothing is read but one byte of zeros."""
    for path in (CHARACTER_DEVICE, *GPU_DEVICES, *BLOCK_DEVICES):
        place = text_of(f"{DIRECTORY}/{path.rsplit('/', 1)[-1]}")
        opened = script.call("openat", AT_FDCWD, place, _READ_ONLY_NONBLOCKING, 0)
        script.report(path, opened)
        if path == CHARACTER_DEVICE:
            script.report("read", script.call("read", opened, script.buffer(8), 1))
