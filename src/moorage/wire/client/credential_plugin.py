"""Credential plugins: programs that a kubeconfig names to get a token or certificate.

Managed clusters are reached through them. A plugin runs when a credential is first needed, and
again when that has expired or was refused; which program it is was the kubeconfig's author's
choice. Source: client-go `plugin/pkg/client/auth/exec`, API docs `client.authentication.k8s.io`.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.clock import Clock, SystemClock, parse_time
from moorage.api.meta import Object, Raw

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
CLUSTER_EXTENSION = f"{GROUP}/exec"
"""Extension of a kubeconfig's cluster that is given to the plugin as `config`."""

_KIND = "ExecCredential"
_INFO_VARIABLE = "KUBERNETES_EXEC_INFO"
_NEVER, _IF_AVAILABLE, _ALWAYS = "Never", "IfAvailable", "Always"
INTERACTIVE_MODES = (_NEVER, _IF_AVAILABLE, _ALWAYS)
_SILENT_S = 60.0
_INTERACTIVE_S = 600.0
_MOST_BYTES = 1 << 20


class CredentialPluginError(OSError):
    """A credential plugin gave nothing usable; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class CredentialPlugin:
    """The `exec` of a kubeconfig's user.

    command: a path, or a name that is looked for in PATH. cluster: what the plugin is given of the
    cluster, None where the kubeconfig does not provide it.
    """

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    interactive_mode: str = _IF_AVAILABLE
    install_hint: str = ""
    cluster: Raw | None = None


class Credential(msgspec.Struct, frozen=True):
    """What a plugin gave: a token, a certificate with its key in PEM, or both."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires_at: datetime | None = None


class _Status(Object, frozen=True):
    expiration_timestamp: str | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(Object, frozen=True):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class PluginCredentials:
    """The credential of a plugin, kept until it expires or is refused."""

    def __init__(self, plugin: CredentialPlugin, clock: Clock | None = None) -> None:
        self._plugin = plugin
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._credential: Credential | None = None

    async def current(self) -> Credential:
        """Return the credential; runs the plugin if there is none, or it has expired.

        Raises CredentialPluginError.
        """
        async with self._lock:
            credential = self._credential
            if credential is None or _has_expired(credential, self._clock.now()):
                credential = self._credential = await run_plugin(self._plugin)
            return credential

    def refuse(self, credential: Credential) -> None:
        """Have the plugin run again for the next request: the server refused this credential."""
        if self._credential is credential:
            self._credential = None


def _has_expired(credential: Credential, now: datetime) -> bool:
    return credential.expires_at is not None and now >= credential.expires_at


async def run_plugin(plugin: CredentialPlugin, silent_s: float = _SILENT_S) -> Credential:
    """Run a plugin and return what it printed. Its standard error is this process's.

    Raises CredentialPluginError if it cannot run, fails, takes too long or prints no credential.
    """
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == _ALWAYS and not has_terminal:
        raise _error(plugin, "it needs a terminal, and standard input is none")
    is_interactive = plugin.interactive_mode != _NEVER and has_terminal
    program = shutil.which(plugin.command)
    if program is None:
        hint = f"; {plugin.install_hint.strip()}" if plugin.install_hint.strip() else ""
        raise _error(plugin, f"it is not installed{hint}")
    process = await asyncio.create_subprocess_exec(
        program,
        *plugin.arguments,
        stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **plugin.environment, _INFO_VARIABLE: _info(plugin, is_interactive)},
        # A group of its own can be ended as a whole, but has no terminal to ask on.
        process_group=None if is_interactive else 0,
    )
    limit_s = _INTERACTIVE_S if is_interactive else silent_s
    try:
        async with asyncio.timeout(limit_s):
            output = await _read(plugin, process)
            status = await process.wait()
    except TimeoutError as error:
        raise _error(plugin, f"it has not ended after {limit_s:g} s") from error
    finally:
        if process.returncode is None:
            if is_interactive:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
            # Reads what is left: the process counts as ended once its output is closed.
            await process.communicate()
    if status != 0:
        raise _error(plugin, f"it failed with exit code {status}")
    return parse_credential(plugin, output)


async def _read(plugin: CredentialPlugin, process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    output = b""
    while chunk := await process.stdout.read(65536):
        output += chunk
        if len(output) > _MOST_BYTES:
            raise _error(plugin, f"it printed more than {_MOST_BYTES} bytes")
    return output


def _info(plugin: CredentialPlugin, is_interactive: bool) -> str:
    spec: Raw = {"interactive": is_interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    document = {"kind": _KIND, "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(document).decode()


def parse_credential(plugin: CredentialPlugin, output: bytes) -> Credential:
    """Return the credential that a plugin printed. Raises CredentialPluginError."""
    try:
        printed = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError as error:
        raise _error(plugin, f"it printed no {_KIND}: {error}") from error
    if (printed.api_version, printed.kind) != (plugin.api_version, _KIND):
        raise _error(
            plugin,
            f"it printed {printed.api_version} {printed.kind}, and the kubeconfig asks for "
            f"{plugin.api_version} {_KIND}",
        )
    status = printed.status
    if status is None:
        raise _error(plugin, f"it printed an {_KIND} without status")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _error(plugin, "it printed one of certificate and key without the other")
    if not status.token and not status.client_certificate_data:
        raise _error(plugin, "it printed neither a token nor a certificate and key")
    try:
        expires_at = (
            parse_time(status.expiration_timestamp) if status.expiration_timestamp else None
        )
    except ValueError as error:
        raise _error(plugin, f"expirationTimestamp: {error}") from error
    return Credential(
        status.token,
        status.client_certificate_data.encode(),
        status.client_key_data.encode(),
        expires_at,
    )


def parse_plugin(
    given: Mapping[str, Any], directory: Path, cluster: Mapping[str, Any]
) -> CredentialPlugin:
    """Return the `exec` of a user in a kubeconfig of a directory, for one of its clusters.

    A relative command with a separator is a path from that directory. Raises ValueError, with the
    field that is wrong.
    """
    version = given.get("apiVersion")
    if version not in VERSIONS:
        raise ValueError(f"exec.apiVersion is {version!r}, not one of {', '.join(VERSIONS)}")
    command = given.get("command")
    if not isinstance(command, str) or not command:
        raise ValueError("exec.command is missing")
    mode = given.get("interactiveMode") or ("" if version == VERSIONS[0] else _IF_AVAILABLE)
    if mode not in INTERACTIVE_MODES:
        raise ValueError(
            f"exec.interactiveMode is {mode!r}, not one of {', '.join(INTERACTIVE_MODES)}"
        )
    if os.sep in command and not os.path.isabs(command):
        command = str(directory / command)
    variables = given.get("env") or ()
    return CredentialPlugin(
        api_version=version,
        command=command,
        arguments=tuple(map(str, given.get("args") or ())),
        environment={str(entry["name"]): str(entry.get("value", "")) for entry in variables},
        interactive_mode=mode,
        install_hint=str(given.get("installHint") or ""),
        cluster=_cluster_info(cluster) if given.get("provideClusterInfo") else None,
    )


def _cluster_info(cluster: Mapping[str, Any]) -> Raw:
    """Return the cluster as a plugin gets it. `certificate-authority-data` is base64 text."""
    info: Raw = {
        key: cluster[key]
        for key in (
            "server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url",
            "disable-compression", "certificate-authority-data",
        )
        if cluster.get(key)
    }  # fmt: skip
    for entry in cluster.get("extensions") or ():
        if entry.get("name") == CLUSTER_EXTENSION:
            info["config"] = entry.get("extension")
    return info


def with_authority(cluster: Mapping[str, Any], authority: bytes | None) -> Raw:
    """Return a kubeconfig's cluster with the PEM of its authority in place."""
    result = dict(cluster)
    if authority is not None:
        result["certificate-authority-data"] = base64.b64encode(authority).decode()
    return result


def _error(plugin: CredentialPlugin, text: str) -> CredentialPluginError:
    return CredentialPluginError(f"credential plugin {plugin.command}: {text}")
