"""Machine code for arm64, on an emulator where one is installed."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from moorage.runtimes.probing.programs import parse_output
from moorage.runtimes.probing.programs.script import AT_FDCWD, Script, text_of

_EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


@pytest.mark.skipif(_EMULATOR is None, reason="qemu-user is not installed")
def test_calls_children_loops_and_digits_work_on_arm64(tmp_path: Path) -> None:
    script = Script("arm64")
    script.print_text("== text\nhello\n")
    script.report("missing", script.call("openat", AT_FDCWD, text_of("/none"), 0))
    with script.child("killed"):
        script.call("kill", script.call("getpid"), 11)
    with script.child("endless", limit_s=1), script.endless():
        script.call("getppid")
    with script.child("child"):
        pid = script.call("getpid")
    script.report("pid", pid)
    program = tmp_path / "program"
    program.write_bytes(script.finished())
    program.chmod(0o755)
    done = subprocess.run([str(_EMULATOR), program], capture_output=True, timeout=60, check=True)
    output = parse_output(done.stdout.decode())
    assert output.section("text") == "hello"
    assert output.results["missing"] == -errno.ENOENT
    assert (output.signal_of("killed"), output.signal_of("endless")) == (11, 14)
    assert output.results["pid"] > 0
