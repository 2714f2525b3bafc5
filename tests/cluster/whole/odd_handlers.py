"""Odd handlers for tests: crun behind a script that lies, hangs or breaks half-way."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.running import RunningCluster, runtime_class, until

_SCRIPT = """#!/bin/sh
for word; do
  [ "$before" = --bundle ] && bundle=$word
  [ "$before" = -b ] && bundle=$word
  case "$word" in create) is_create=1 ;; esac
  before=$word
done
if [ -n "$is_create" ]; then
{on_create}
fi
exec {crun} "$@"
"""

LIES_ABOUT_ITS_KERNEL = "sed -i 's/uname -r/echo 9.9-sandboxed/' \"$bundle/config.json\""
"""Programs see another kernel release than the node's; the kernel is the node's all the same."""

HANGS = "sed -i 's/echo proof=moorage; exit 7/sleep 3600/' \"$bundle/config.json\""
"""The first probe of a conformance test never ends."""

LIES_ABOUT_ITS_OUTPUT = "sed -i 's/echo ready/echo anything/' \"$bundle/config.json\""
"""Probes of a measurement print something else."""


def breaks_after(count: int, place: Path) -> str:
    """Creates that many containers of a measurement, and no more.

    Others, such as those that discovery runs on a new handler, do not count.
    """
    return (
        'if grep -q /payload "$bundle/config.json"; then '
        f'echo x >> {place}/created; [ "$(wc -l < {place}/created)" -le {count} ] || '
        "{ echo 'it broke half-way' >&2; exit 1; }; fi"
    )


@contextmanager
def odd_class(cluster: RunningCluster, place: Path, on_create: str) -> Iterator[str]:
    """Yield the name of a handler and class that act so when a container is created."""
    name = f"odd-{uuid.uuid4().hex[:8]}"
    program = place / name
    program.write_text(_SCRIPT.format(on_create=on_create, crun=shutil.which("crun")))
    program.chmod(0o755)
    file = cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml"
    scratch = file.with_suffix(".new")
    scratch.write_text(f'adapter = "oci"\nbinary = "{program}"\n')
    scratch.replace(file)
    try:
        until(lambda: name in _handlers(cluster), f"handler {name}")
        cluster.apply(runtime_class(name, name))
        yield name
    finally:
        file.unlink()
        cluster.kubectl("delete", "runtimeclass", name, "--ignore-not-found")


def _handlers(cluster: RunningCluster) -> set[str]:
    status = cluster.get("node", "n1")["status"]
    return {handler.get("name", "") for handler in status["runtimeHandlers"]}
