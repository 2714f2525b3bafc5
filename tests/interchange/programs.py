"""Programs of Kubernetes, and the commands by which the how-to page starts them and ours."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import HOW_TO, Block, blocks
from tests.running import MOOR

VARIABLE = "MOORAGE_KUBERNETES_BIN"
_END_S = 20.0
# What programs of Kubernetes log as errors although nothing is wrong; the page explains each.
_EXPECTED = re.compile(
    "The manifest file is empty|object has been modified|rlimit on max file handles"
    "|registered yet|storage is .re.initializing|current node from lister"
    "|node info from the cluster"
    "|RuntimeConfig from runtime service failed"
    "|is not as new as written version"
    "|getting node|get node|ContainerStatus from runtime service failed"
    "|initialize CSINode|no relationship found|update status for pod"
    "|use of closed network connection"
    "|in container with oom score|separate container filesystem|Skipping pod synchronization"
    "|Failed to read data from checkpoint|stats initialization may not|summary stats"
    "|cgroup (config|limits) for the pod|mirror pod|Unauthorized|being terminated"
    "|unexpected items still remain|unable to get metrics|Image garbage collection failed once"
    # A controller of one distribution, whose builds have it compiled in.
    "|service-ca-cert-publisher",
    re.IGNORECASE,
)


def required(*names: str) -> dict[str, str]:
    """The paths of programs; the test is skipped without one of them."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        pytest.skip(f"{VARIABLE} names no directory with {', '.join(names)}")
    paths = {name: shutil.which(name, path=f"{directory}:{os.environ['PATH']}") for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        pytest.skip(f"not in {directory}: {', '.join(missing)}")
    return {name: path for name, path in paths.items() if path is not None}


def _page() -> list[Block]:
    (page,) = [page for page in HOW_TO if page.stem == "parts-of-kubernetes"]
    return blocks(page.read_text())


def command(start: str, replacements: Mapping[str, str]) -> list[str]:
    """The words of the page's command that begins with `start`, with its places replaced."""
    (text,) = [block.text for block in _page() if block.text.startswith(start)]
    text = text.replace("\\\n", " ")
    # The longest first: one place may be in another.
    for place in sorted(replacements, key=len, reverse=True):
        text = text.replace(place, replacements[place])
    program, *arguments = shlex.split(text)
    return [*(MOOR if program == "moor" else (program,)), *arguments]


def kubelet_configuration() -> dict[str, Any]:
    """The KubeletConfiguration that the page shows."""
    shown = [json.loads(block.text) for block in _page() if block.language == "json"]
    (configuration,) = [one for one in shown if one.get("kind") == "KubeletConfiguration"]
    return dict(configuration)


def manifests(name: str) -> list[dict[str, Any]]:
    """The objects of the page's block that has one of this name."""
    for block in _page():
        if block.language == "yaml":
            objects = list(yaml.safe_load_all(block.text))
            if name in {one["metadata"]["name"] for one in objects}:
                return objects
    raise AssertionError(f"the page shows no object {name}")


class Programs:
    """Programs that run, each with a log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: list[str]) -> None:
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def check(self) -> None:
        """All run, and none has logged an error that the page does not explain."""
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} ended: {self.log(name).read_text()[-2000:]}"
            lines = self.log(name).read_text(errors="replace").splitlines()
            errors = [line for line in lines if _is_error(line) and not _EXPECTED.search(line)]
            assert not errors, f"{name}: " + "\n".join(errors[:10])

    def show(self) -> None:
        """Print the errors that each has logged."""
        for name in self._running:
            lines = self.log(name).read_text(errors="replace").splitlines()
            print(f"--- {name}", *[line for line in lines if _is_error(line)][-30:], sep="\n")

    def stop(self) -> None:
        """Stop all, the last one first."""
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_error(line: str) -> bool:
    """Whether a line of klog's, or of ours, reports an error or a warning of ours."""
    return bool(re.match(r"[EF]\d{4} |\S+Z (warning|error) |Traceback", line))


@contextmanager
def programs(directory: Path) -> Iterator[Programs]:
    """Programs that are stopped at the end."""
    directory.mkdir()
    started = Programs(directory)
    try:
        yield started
    except BaseException:
        started.show()
        raise
    finally:
        started.stop()
