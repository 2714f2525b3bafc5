"""Which runtime made a container, told from inside it.

Runtimes leave traces. gVisor is a kernel of its own and says so in its log; crun links `/dev/core`
to `/proc/kcore`, runc masks files with a null device of its own `/dev`. What cannot be told apart
is not guessed.
"""

from __future__ import annotations

LOOK = (
    "uname -r; "
    "dmesg 2>/dev/null | grep -q gVisor && echo gvisor; "
    "test -L /dev/core && echo core; "
    "grep -q ' /null /proc/keys .* - tmpfs ' /proc/self/mountinfo && echo masked; "
    "true"
)
"""A shell script for `sh -c`: the kernel's release on the first line, then traces, one a line."""


def runtime_seen(said: str) -> tuple[str, str]:
    """The kernel's release and the runtime, `?` when its traces are not known."""
    kernel, *traces = said.split() or [""]
    if "gvisor" in traces:
        return kernel, "gVisor"
    if "core" in traces:
        return kernel, "crun"
    if "masked" in traces:
        return kernel, "runc"
    return kernel, "?"
