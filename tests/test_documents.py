"""The commands of README, tutorial and how-to pages, executed on real clusters as they stand there.

Pages that run `moor up` start their own cluster; all others share one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.documents import REPOSITORY, Block, Step, blocks, executed, matches, steps
from tests.engine.images.builds import Entry, directory, layer, oci_archive
from tests.engine.images.conftest import serving
from tests.forks import run_moor, write_moor
from tests.running import (
    EXAMPLES,
    KUBECTL_COLLECTS_LESS,
    RunningCluster,
    newer_runsc,
    running,
    skip_without_gvisor,
    skip_without_kubectl,
    skip_without_runtimes,
)

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(600)]

_COMMAND_S = 150.0
_SETTLES_S = 60.0
# Commands that change nothing are repeated until their output is the one shown.
_READERS = (
    "kubectl get",
    "kubectl logs",
    "moor explain",
    "moor runtimes",
    "moor status",
    "moor image list",
)
_REGISTRY = "registry.example.com"
# Of the password s3cret, by bcrypt.
_USERS = "me:$2b$04$xjO1BCOD9kKn0KGP31Sa2uK6KZY5JTqar/eAh6V3PYyZdZ3o508QW\n"


class Reader:
    """Someone who follows a page: a directory, a shell's environment, a cluster."""

    def __init__(self, directory: Path, data_dir: Path, registry: str = "") -> None:
        self._directory = directory
        programs = directory.with_name("programs")
        programs.mkdir()
        write_moor(programs / "moor")
        self._replacements = {
            "/etc/moorage/handlers.d": str(data_dir / "engine" / "handlers.d"),
            "/var/lib/moorage": str(data_dir),
            "/usr/local/bin/runsc": str(newer_runsc() or shutil.which("runsc")),
            _REGISTRY: registry or _REGISTRY,
        }
        self._environment = {
            **os.environ,
            **KUBECTL_COLLECTS_LESS,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MOORAGE_DATA_DIR": str(data_dir),
            "KUBECONFIG": str(data_dir / "kubeconfig"),
            "KUBECACHEDIR": str(directory / "kubectl-cache"),
            "EXPORTED": str(directory / "exported"),
        }
        (directory / "exported").touch()
        shutil.copytree(EXAMPLES, directory / "examples")

    def follow(self, block: Block) -> None:
        """Write the block's file, or run its commands."""
        if block.marker == "file":
            path = self._directory / self._here(block.argument)
            scratch = path.with_suffix(".new")
            scratch.write_text(self._here(block.text))
            scratch.replace(path)
        elif block.marker == "run":
            for step in steps(block):
                self._take(step, f"line {block.line}")

    def _take(self, step: Step, where: str) -> None:
        deadline = time.monotonic() + _SETTLES_S
        began, pause_s = time.monotonic(), 0.3
        shown = None if step.output is None else self._here(step.output)
        while True:
            done = self._run(self._here(step.command))
            output = f"{where}: {step.command}\n{done.stdout}"
            is_as_shown = shown is None or matches(shown, done.stdout)
            if done.returncode == 0 and is_as_shown:
                print(f"{time.monotonic() - began:.2f} s, {output}")
                return
            is_final = not step.command.startswith(_READERS) or time.monotonic() > deadline
            assert not is_final, f"{output}exit status {done.returncode}; the page shows\n{shown}"
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, 2.0)

    def _run(self, script: str) -> subprocess.CompletedProcess[str]:
        # What one command exports, the next ones have.
        kept = f'. "$EXPORTED"\ntrap \'export -p > "$EXPORTED"\' EXIT\nset -e\n{script}'
        return subprocess.run(
            ["bash", "-c", kept],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )

    def _here(self, text: str) -> str:
        for place, real in self._replacements.items():
            text = text.replace(place, real)
        return text


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """The cluster of pages that start none."""
    data_dir = tmp_path_factory.mktemp("documents") / "data"
    with running(data_dir, node_name="n1") as cluster:
        yield cluster


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry with a password that has the image `team/app:1`."""
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("busybox-static is not installed")
    place = tmp_path / "registry"
    place.mkdir()
    (place / "users").write_text(_USERS)
    authentication = f"auth: {{htpasswd: {{realm: test, path: {place / 'users'}}}}}\n"
    for served in serving(place, authentication):
        content = layer(
            directory("bin"), Entry("bin/sleep", Path(program).read_bytes(), mode=0o755)
        )
        archive = oci_archive(
            tmp_path / "app.tar", ["localhost/app"], [content], {"Cmd": ["/bin/sleep", "3600"]}
        )
        served.push(archive, "team/app:1", "--dest-creds", "me:s3cret")
        yield served.address


@pytest.fixture
def follow(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Follow a page on the cluster that it starts, or else on the shared one."""
    own_data = tmp_path / "data"

    def followed(text: str) -> None:
        page = [block for block in blocks(text) if block.marker in ("run", "file")]
        starts = any("moor up" in block.text for block in page if block.marker == "run")
        data_dir = own_data if starts else request.getfixturevalue("shared").data_dir
        served = request.getfixturevalue("registry") if _REGISTRY in text else ""
        place = tmp_path / "reader"
        place.mkdir()
        reader = Reader(place, data_dir, served)
        for block in page:
            reader.follow(block)

    yield followed
    if (own_data / "cluster.json").exists():
        down = ("down", "--delete-data", "--data-dir", str(own_data))
        done = run_moor(*down, timeout_s=_COMMAND_S)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", executed(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_can_be_followed(page: Path, follow: Callable[[str], None]) -> None:
    skip_without_kubectl()
    skip_without_runtimes()
    text = page.read_text()
    if "gvisor" in text:
        skip_without_gvisor()
    follow(text)
