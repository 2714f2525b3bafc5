"""Process I/O accounting. Source: proc_pid_io(5)."""

from __future__ import annotations

from pathlib import Path

_WRITTEN = "wchar:"


def written_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return how many bytes a process has passed to write(2) and similar calls.

    None when the kernel does not count them. Raises OSError when the process has exited, or belongs
    to another user.
    """
    for line in (proc / str(pid) / "io").read_text().splitlines():
        if line.startswith(_WRITTEN):
            return int(line.removeprefix(_WRITTEN))
    return None
