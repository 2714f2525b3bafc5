"""Runtime detection from inside a container.

gVisor names itself in its kernel log; crun links `/dev/core` to `/proc/kcore`; runc masks files
with a null device of its own `/dev`. Any other runtime is unknown.
"""

from __future__ import annotations

DETECTION_SCRIPT = (
    "uname -r; "
    "dmesg 2>/dev/null | grep -q gVisor && echo gvisor; "
    "test -L /dev/core && echo core; "
    "grep -q ' /null /proc/keys .* - tmpfs ' /proc/self/mountinfo && echo masked; "
    "true"
)
"""A shell script for `sh -c`: the kernel's release on the first line, then traces, one a line."""


def detect_runtime(output: str) -> tuple[str, str]:
    """Return the kernel's release and the runtime by the script's output, `?` if unknown."""
    kernel, *traces = output.split() or [""]
    if "gvisor" in traces:
        return kernel, "gVisor"
    if "core" in traces:
        return kernel, "crun"
    if "masked" in traces:
        return kernel, "runc"
    return kernel, "?"
