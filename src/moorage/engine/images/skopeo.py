"""The program that speaks to registries, run once for each question.

    manifest(name) → bytes     configuration(name) → bytes     copy(name) → blobs in a directory

It gets credentials in a file, mirrors in another, and is killed when the question is taken back or
nothing moves for too long. Source: skopeo(1), skopeo-copy(1), containers-registries.conf(5),
containers-policy.json(5).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from moorage.api.logs import Log
from moorage.cri.reference import Reference
from moorage.engine.errors import FailedError
from moorage.engine.images.refusals import refusal
from moorage.handlers.command import Answer, CommandError, run

log = Log(__name__)

_POLICIES = (Path("/etc/containers/policy.json"),)
# A pull may take long; what ends it is that nothing moves.
_LONGEST_S = 86_400.0
_LOOK_EVERY_S = 0.5
_PASSED = ("PATH", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
           "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip

Progress = Callable[[int], None]
"""Told the bytes that have arrived, now and then."""


class _UnansweredError(Exception):
    """The program failed; the text is what it said."""


@dataclass(frozen=True, slots=True)
class Skopeo:
    """How to run it. `mirrors` maps a registry to the URL asked in its stead."""

    program: Path
    run: Path
    mirrors: Mapping[str, str]
    stall_s: float

    def configure(self) -> None:
        """Write the file of mirrors. Blocks. Raises OSError."""
        if self.mirrors:
            self._registries.write_text(registries_file(self.mirrors))

    async def manifest(self, reference: Reference, auth: Path | None, about: str) -> bytes:
        """The manifest as the registry serves it, whose digest names the image.

        `about` is what the image is called in errors. Raises EngineError.
        """
        return await self._inspect(reference, auth, (), about)

    async def configuration(self, reference: Reference, auth: Path | None, about: str) -> bytes:
        """The configuration blob of an image for one platform. Raises EngineError."""
        return await self._inspect(reference, auth, ("--config",), about)

    async def copy(
        self,
        reference: Reference,
        auth: Path | None,
        directory: Path,
        progress: Progress,
        about: str,
        *,
        is_oci: bool,
    ) -> None:
        """Put the blobs into `directory/blobs/sha256`, but for those that are there.

        `is_oci` says which kind of manifest it is. Raises EngineError.
        """
        blobs = directory / "blobs"
        # A docker manifest is written anew as an OCI one, and its layers stay as they are; an OCI
        # manifest's layers could be packed anew unless told otherwise.
        form = ("--preserve-digests",) if is_oci else ("--dest-oci-accept-uncompressed-layers",)
        argv = [
            *self._start(), "copy", "--quiet", *form, *self._source("--src-", reference, auth),
            "--dest-shared-blob-dir", str(blobs),
            f"docker://{reference.full}", f"oci:{directory / 'layout'}:image",
        ]  # fmt: skip
        try:
            await self._ask(argv, lambda: _size(blobs / "sha256"), progress)
        except _UnansweredError as error:
            raise refusal(about, str(error)) from error

    async def _inspect(
        self, reference: Reference, auth: Path | None, options: Sequence[str], about: str
    ) -> bytes:
        argv = [
            *self._start(), "inspect", "--raw", *options, *self._source("--", reference, auth),
            f"docker://{reference.full}",
        ]  # fmt: skip
        try:
            return await self._ask(argv, lambda: 0, lambda _: None)
        except _UnansweredError as error:
            raise refusal(about, str(error)) from error

    def _start(self) -> list[str]:
        # Without the engine nobody waits for the image, so the program must not outlive it.
        guard = shutil.which("setpriv")
        wrapper = [guard, "--pdeathsig", "KILL", "--"] if guard else []
        words = [*wrapper, str(self.program), "--tmpdir", str(self.run)]
        if self.mirrors:
            words += ["--registries-conf", str(self._registries)]
        if not any(path.exists() for path in _POLICIES):
            # A machine without a policy has asked for no signatures.
            words.append("--insecure-policy")
        return words

    def _source(self, prefix: str, reference: Reference, auth: Path | None) -> list[str]:
        # Never the logins of whoever started the engine: pods bring their own.
        words = [f"{prefix}no-creds"] if auth is None else [f"{prefix}authfile", str(auth)]
        if is_loopback(reference.registry):
            words.append(f"{prefix}tls-verify=false")
        return words

    @property
    def _registries(self) -> Path:
        return self.run / "registries.conf"

    async def _ask(
        self, argv: Sequence[str], measure: Callable[[], int], progress: Progress
    ) -> bytes:
        if shutil.which(self.program) is None:
            raise FailedError(f"images cannot be pulled: no program {self.program}; install skopeo")
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._answer(argv, environment))
            watcher = tasks.create_task(self._stalled(measure, progress))
            await asyncio.wait((running, watcher), return_when=asyncio.FIRST_COMPLETED)
            is_stalled = not running.done()
            for each in (running, watcher):
                each.cancel()
        progress(measure())
        if is_stalled:
            raise _UnansweredError(f"no progress for {self.stall_s:g} seconds")
        answer = running.result()
        if answer is None or not answer.is_success:
            said = "" if answer is None else answer.error.decode(errors="replace")
            raise _UnansweredError(said)
        return answer.output

    async def _answer(self, argv: Sequence[str], environment: Mapping[str, str]) -> Answer | None:
        """What it left; None when it could not be run."""
        try:
            return await run(
                argv, deadline_s=_LONGEST_S, environment=environment, directory=self.run
            )
        except CommandError as error:
            log.error("the program that pulls cannot be run", error=error)
            return None

    async def _stalled(self, measure: Callable[[], int], progress: Progress) -> None:
        """Tell the progress; returns when there was none for too long."""
        loop = asyncio.get_running_loop()
        seen, moved_s = measure(), loop.time()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = measure()
            if now != seen:
                seen, moved_s = now, loop.time()
                progress(now)
            elif loop.time() - moved_s > self.stall_s:
                return


def is_loopback(registry: str) -> bool:
    """Whether a registry is on this machine, where plain HTTP is as good as HTTPS."""
    host = urlsplit(f"//{registry}").hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def registries_file(mirrors: Mapping[str, str]) -> str:
    """The registries.conf (version 2) for a mapping of registries to the mirrors' URLs."""
    lines = []
    for registry, url in mirrors.items():
        parts = urlsplit(url)
        location = f"{parts.netloc}{parts.path}".rstrip("/")
        # A JSON string is a TOML string.
        lines += [
            "[[registry]]",
            f"prefix = {json.dumps(registry)}",
            f"location = {json.dumps(registry)}",
            "[[registry.mirror]]",
            f"location = {json.dumps(location)}",
            f"insecure = {json.dumps(parts.scheme == 'http')}",
        ]
    return "\n".join([*lines, ""])


def _size(directory: Path) -> int:
    """Bytes on disk, so that what only stands for a blob counts for nothing."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries)
    except FileNotFoundError:
        # Not begun, or a blob got its name between the two looks.
        return 0
