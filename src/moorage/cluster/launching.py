"""Launch of the cluster's own programs: its supervisor, its parts, what clears the host.

A process has one launcher, as one of multiprocessing has a start method. `execute`, the default,
executes the program; a process whose programs all share its modules may fork them instead, as those
of our tests do.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Launcher(Protocol):
    """Starts a program, in a session of its own and without input.

    `output` and `errors` are the descriptors of its standard streams, or files; None is this
    process's own. `environment` is the whole one, None this process's. `passing` are descriptors
    that it inherits under their numbers, beside its standard streams the only ones. Raises OSError.
    """

    def __call__(
        self,
        argv: Sequence[str],
        *,
        output: Any,
        errors: Any = None,
        environment: Mapping[str, str] | None = None,
        passing: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]: ...


def execute(
    argv: Sequence[str],
    *,
    output: Any,
    errors: Any = None,
    environment: Mapping[str, str] | None = None,
    passing: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Execute a program. See `Launcher`."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=environment,
        pass_fds=passing,
        start_new_session=True,
    )


_launcher: Launcher = execute


def set_launcher(launcher: Launcher) -> Launcher:
    """Set this process's launcher. Return the former one."""
    global _launcher
    former, _launcher = _launcher, launcher
    return former


def launch(
    argv: Sequence[str],
    *,
    output: Any,
    errors: Any = None,
    environment: Mapping[str, str] | None = None,
    passing: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program by this process's launcher. See `Launcher`."""
    return _launcher(argv, output=output, errors=errors, environment=environment, passing=passing)
