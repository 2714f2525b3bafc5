"""The supervisor of a cluster as a process: `python -m moorage.cluster.supervise DATA_DIR`.

`moor up` becomes this process when everything is decided, so that what stays in memory is only
what supervising needs.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from moorage.cluster.layout import Layout
from moorage.cluster.notify import notify_ready
from moorage.cluster.settings import Settings, SettingsError, load
from moorage.cluster.supervisor import (
    COMPLETE,
    NOTIFY_VARIABLE,
    AlreadyRunningError,
    Part,
    Supervisor,
)

# Freed memory goes back to the system at once: an idle part is small, whatever its start took.
_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}


def parts_of(layout: Layout, settings: Settings) -> tuple[Part, ...]:
    """The processes of a cluster, in the order they are started."""

    def part(name: str, label: str) -> Part:
        argv = (sys.executable, "-m", "moorage.cluster.parts", name, str(layout.root))
        return Part(name, label, argv, environment=_MEMORY)

    node = (part("node", f"node {settings.node_name}"),) if settings.has_node else ()
    has_engine = settings.has_node and not settings.cri
    engine = (part("engine", "container engine"),) if has_engine else ()
    return (
        part("apiserver", "API server"),
        *engine,
        *node,
        part("controllers", "controllers and scheduler"),
    )


def usage(layout: Layout, settings: Settings, merged_into: str = "") -> str:
    """How to use a cluster that is ready."""
    first = (
        f"kubectl config use-context {shlex.quote(settings.name)}"
        if merged_into
        else f"export KUBECONFIG={shlex.quote(str(layout.kubeconfig))}"
    )
    return f"\n  {first}\n  kubectl get runtimeclasses,nodes\n"


def become_supervisor(layout: Layout, merged_into: str = "") -> None:
    """Replace this process by the supervisor; does not return."""
    argv = [sys.executable, "-m", "moorage.cluster.supervise", str(layout.root), merged_into]
    sys.stdout.flush()
    if NOTIFY_VARIABLE in os.environ:
        os.set_inheritable(int(os.environ[NOTIFY_VARIABLE]), True)
    os.execv(sys.executable, argv)


def main(argv: list[str]) -> int:
    """Supervise until SIGTERM, SIGINT or SIGHUP; the exit status."""
    layout, merged_into = Layout(Path(argv[0])), argv[1]
    settings = load(layout.settings)
    if settings is None:
        raise SettingsError(f"{layout.settings}: no such file; `moor up` makes it")
    _keep_descriptor()

    def report(sentence: str) -> None:
        print(sentence, flush=True)
        if sentence == COMPLETE:
            print(usage(layout, settings, merged_into), flush=True)
            notify_ready()

    try:
        Supervisor(layout, parts_of(layout, settings), report).run()
    except AlreadyRunningError as error:
        print(f"moor: {error}", file=sys.stderr)
        return 1
    return 0


def _keep_descriptor() -> None:
    """Whoever waits for this process must not be answered by a part."""
    descriptor = os.environ.get(NOTIFY_VARIABLE)
    if descriptor is not None:
        os.set_inheritable(int(descriptor), False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
