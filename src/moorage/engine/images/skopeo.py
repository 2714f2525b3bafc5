"""skopeo runs, one for each request to a registry.

    manifest(name) → bytes     configuration(name) → bytes     copy(name) → blobs in a directory

It gets credentials in a file, mirrors in another, and is killed on cancellation or when no data
arrives for too long. Source: skopeo(1), skopeo-copy(1), containers-registries.conf(5), containers-
policy.json(5).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import (
    EngineError,
    ExhaustedError,
    FailedError,
    InvalidError,
    NotFoundError,
    UnsupportedCallError,
)
from moorage.linux.command import Answer, CommandError, run
from moorage.wire.cri import pb
from moorage.wire.cri.reference import DEFAULT_REGISTRY, Reference

# Registry credentials: from the CRI's `AuthConfig` to a file for skopeo.
#
# Secrets are in the file, never on the command line, which any user may read. Source: CRI
# AuthConfig; containers-auth.json(5).

_HUB_HOSTS = frozenset({"index.docker.io", "registry-1.docker.io", DEFAULT_REGISTRY})


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password, or an identity token; its repr shows neither."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @classmethod
    def of(cls, auth: pb.AuthConfig, reference: Reference) -> Credentials | None:
        """Return the credentials in an `AuthConfig`; None when it is empty, or for another server.

        Raises InvalidError for a malformed `auth`, UnsupportedCallError for a registry token.
        """
        if auth.server_address and _host(auth.server_address) != _host(reference.registry):
            return None
        if auth.username:
            return cls(auth.username, auth.password)
        if auth.auth:
            return cls(*_decoded(auth.auth))
        if auth.identity_token:
            return cls(identity_token=auth.identity_token)
        if auth.registry_token:
            # skopeo takes a registry token on its command line only, where any user could read it.
            raise UnsupportedCallError(
                f"registry tokens are not supported for {reference.full}: give a user name and "
                "password, or an identity token"
            )
        return None


@contextmanager
def credentials_file(
    directory: Path, name: str, reference: Reference, credentials: Credentials | None
) -> Iterator[Path | None]:
    """Write a credentials file for the block; yields None without credentials. Raises OSError."""
    if credentials is None:
        yield None
        return
    plain = f"{credentials.username}:{credentials.password}".encode()
    entry = {"auth": base64.b64encode(plain).decode()}
    if credentials.identity_token:
        entry["identitytoken"] = credentials.identity_token
    path = directory / f"{name}.auth.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode({"auths": {reference.registry: entry}}))
        yield path
    finally:
        path.unlink(missing_ok=True)


def _decoded(auth: str) -> tuple[str, str]:
    try:
        plain = base64.b64decode(auth).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidError("the credentials' auth is not base64 of user:password") from error
    username, colon, password = plain.partition(":")
    if not colon:
        raise InvalidError("the credentials' auth is not base64 of user:password")
    # Some tools pad with zero bytes.
    return username, password.strip("\0")


def _host(server: str) -> str:
    """Return the host and port in `https://host/v1/`, `//host` or `host`."""
    host = urlsplit(server if "//" in server else f"//{server}").netloc
    return DEFAULT_REGISTRY if host in _HUB_HOSTS else host


log = Log(__name__)

_POLICIES = (Path("/etc/containers/policy.json"),)
# A pull may take long; it fails when no data arrives.
_LONGEST_S = 86_400.0
_LOOK_EVERY_S = 0.5
_SLACK_BYTES = 16 << 20
"""What a pull may write beside the blobs that its manifest names: documents, temporary files."""
_PASSED = ("PATH", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
           "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip


class _UnansweredError(Exception):
    """skopeo failed; the text is its output."""


@dataclass(frozen=True, slots=True)
class Skopeo:
    """skopeo's settings. `mirrors` maps a registry to its mirror's URL."""

    program: Path
    run: Path
    mirrors: Mapping[str, str]
    stall_s: float

    def configure(self) -> None:
        """Write the mirrors file. Blocks. Raises OSError."""
        if self.mirrors:
            self._registries.write_text(registries_file(self.mirrors))

    async def manifest(self, reference: Reference, auth: Path | None, about: str) -> bytes:
        """Return the manifest as the registry serves it, whose digest names the image.

        `about` is the image's name in errors. Raises EngineError.
        """
        return await self._inspect(reference, auth, (), about)

    async def configuration(self, reference: Reference, auth: Path | None, about: str) -> bytes:
        """Return an image's configuration blob for one platform. Raises EngineError."""
        return await self._inspect(reference, auth, ("--config",), about)

    async def copy(
        self,
        reference: Reference,
        auth: Path | None,
        directory: Path,
        about: str,
        *,
        is_oci: bool,
        size_bytes: int,
    ) -> None:
        """Fetch blobs into `directory/blobs/sha256`, but for those present.

        `is_oci` is the manifest's kind, `size_bytes` the size of its layers as it has them: skopeo
        writes whatever a registry sends, and compares sizes afterwards. Raises EngineError.
        """
        blobs = directory / "blobs"
        # A docker manifest is converted to an OCI one, with its layers unchanged; an OCI manifest's
        # layers could be recompressed without --preserve-digests.
        form = ("--preserve-digests",) if is_oci else ("--dest-oci-accept-uncompressed-layers",)
        argv = [
            *self._start(), "copy", "--quiet", *form, *self._source("--src-", reference, auth),
            "--dest-shared-blob-dir", str(blobs),
            f"docker://{reference.full}", f"oci:{directory / 'layout'}:image",
        ]  # fmt: skip
        try:
            # A file that is complete moves from the layout to the blobs: never counted twice.
            await self._ask(
                argv,
                lambda: _size(blobs / "sha256") + _size(directory / "layout"),
                size_bytes + _SLACK_BYTES,
            )
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
            return await self._ask(argv, lambda: 0)
        except _UnansweredError as error:
            raise refusal(about, str(error)) from error

    def _start(self) -> list[str]:
        # skopeo must not outlive the engine.
        guard = shutil.which("setpriv")
        wrapper = [guard, "--pdeathsig", "KILL", "--"] if guard else []
        words = [*wrapper, str(self.program), "--tmpdir", str(self.run)]
        if self.mirrors:
            words += ["--registries-conf", str(self._registries)]
        if not any(path.exists() for path in _POLICIES):
            # A host without a policy file requires no signatures.
            words.append("--insecure-policy")
        return words

    def _source(self, prefix: str, reference: Reference, auth: Path | None) -> list[str]:
        # Never the logins of the engine's user: pods bring their own.
        words = [f"{prefix}no-creds"] if auth is None else [f"{prefix}authfile", str(auth)]
        if is_loopback(reference.registry):
            words.append(f"{prefix}tls-verify=false")
        return words

    @property
    def _registries(self) -> Path:
        return self.run / "registries.conf"

    async def _ask(
        self, argv: Sequence[str], measure: Callable[[], int], most_bytes: int = 0
    ) -> bytes:
        if shutil.which(self.program) is None:
            raise FailedError(f"images cannot be pulled: {self.program} not found; install skopeo")
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._answer(argv, environment))
            watcher = tasks.create_task(self._fault(measure, most_bytes))
            await asyncio.wait((running, watcher), return_when=asyncio.FIRST_COMPLETED)
            is_stopped = not running.done()
            for task in (running, watcher):
                task.cancel()
        if is_stopped:
            raise _UnansweredError(watcher.result())
        answer = running.result()
        if answer is None or not answer.is_success:
            output = "" if answer is None else answer.error.decode(errors="replace")
            raise _UnansweredError(output)
        return answer.output

    async def _answer(self, argv: Sequence[str], environment: Mapping[str, str]) -> Answer | None:
        """Return the output file's content; None if skopeo could not be run."""
        try:
            return await run(
                argv, deadline_s=_LONGEST_S, environment=environment, directory=self.run
            )
        except CommandError as error:
            log.error("skopeo cannot be run", error=error)
            return None

    async def _fault(self, measure: Callable[[], int], most_bytes: int) -> str:
        """Return why to stop, once the measure has not changed for too long or is too large."""
        loop = asyncio.get_running_loop()
        seen, moved_s = measure(), loop.time()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = measure()
            if most_bytes and now > most_bytes:
                most = most_bytes - _SLACK_BYTES
                return f"the registry sends more than the {most} bytes that the manifest names"
            if now != seen:
                seen, moved_s = now, loop.time()
            elif loop.time() - moved_s > self.stall_s:
                return f"no progress for {self.stall_s:g} seconds"


def is_loopback(registry: str) -> bool:
    """Return whether a registry is on this host, where plain HTTP is acceptable."""
    host = urlsplit(f"//{registry}").hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def registries_file(mirrors: Mapping[str, str]) -> str:
    """Return registries.conf (version 2) for a mapping of registries to mirror URLs."""
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
    """Return the bytes of a directory's files. Their blocks say less: a file system may reserve
    any number for one that grows.
    """
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except FileNotFoundError:
        # Not started, or a blob was renamed between the two reads.
        return 0


# Pull errors, classified by skopeo's output.
#
# Pure. Kubelets match some of these texts at the beginning; the others are containerd's. Source:
# CRI errors `ErrRegistryUnavailable`, `ErrSignatureValidationFailed`.

_LAST_MESSAGE = re.compile(r'level=(?:fatal|error) msg="((?:[^"\\]|\\.)*)"')
_LONGEST = 1000


def _not_found(image: str, _why: str) -> EngineError:
    return NotFoundError(
        f'failed to pull image "{image}": failed to resolve reference "{image}": {image}: not found'
    )


def _denied(image: str, why: str) -> EngineError:
    return FailedError(
        f'failed to pull image "{image}": failed to resolve reference "{image}": pull access '
        f"denied, repository does not exist or may require authorization: {why}"
    )


def _unavailable(image: str, why: str) -> EngineError:
    return FailedError(f'RegistryUnavailable: failed to pull image "{image}": {why}')


def _rejected(image: str, why: str) -> EngineError:
    return FailedError(f'SignatureValidationFailed: failed to pull image "{image}": {why}')


def _full(image: str, why: str) -> EngineError:
    return ExhaustedError(f'failed to pull image "{image}": no space left on device: {why}')


def _failed(image: str, why: str) -> EngineError:
    return FailedError(f'failed to pull image "{image}": {why}')


# The first match counts: more specific messages come first, since messages contain one another.
_CAUSES: tuple[tuple[re.Pattern[str], Callable[[str, str], EngineError]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), make)
    for pattern, make in (
        (r"no space left on device|disk quota exceeded", _full),
        (r"source image rejected|signature (?:is|was) required|no signature", _rejected),
        (r"manifest unknown|name unknown|repository name not known", _not_found),
        (
            r"unauthori[sz]ed|authentication required|access to the resource is denied|forbidden"
            r"|invalid username/password|invalid status code.* 40[13]",
            _denied,
        ),
        (r"not found|invalid status code.* 404", _not_found),
        (
            r"pinging container registry|dial tcp|no such host|i/o timeout|connection reset"
            r"|connection refused|tls: |x509: |unexpected EOF|server misbehaving"
            r"|too ?many ?requests|status code.* (?:429|5\d\d)|received unexpected HTTP status: 5"
            r"|no progress|server gave HTTP response",
            _unavailable,
        ),
    )
)  # fmt: skip


def refusal(image: str, output: str) -> EngineError:
    """Return the error of a pull that failed with that output."""
    why = message_in(output)
    for pattern, make in _CAUSES:
        if pattern.search(why):
            return make(image, why)
    return _failed(image, why)


def message_in(output: str) -> str:
    """Return the last message of skopeo's log on one line; the whole output if it has none."""
    messages = _LAST_MESSAGE.findall(output)
    text = re.sub(r"\\(.)", r"\1", messages[-1]) if messages else output
    return " ".join(text.split())[:_LONGEST] or "skopeo failed without a message"
