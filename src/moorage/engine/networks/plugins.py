"""CNI plugin execution: ADD runs a network's chain, DEL runs it in reverse.

Source: CNI specification 1.1, "Execution Protocol"; the arguments that containerd and CRI-O pass.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.logs import Log
from moorage.engine.errors import FailedError
from moorage.engine.networks.conflist import (
    Conflist,
    addresses_of,
    is_result,
    parse_conflist,
    plugin_input,
)
from moorage.linux.command import CommandError, run
from moorage.linux.trust import distrust

INTERFACE = "eth0"
DEADLINE_S = 60.0
# Plugins that do nothing without this capability argument.
_ACTS_ON = {"portmap": "portMappings", "bandwidth": "bandwidth"}

log = Log(__name__)


class CniError(FailedError):
    """A plugin refused, failed or is missing; the text has the plugin's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConf:
    """A sandbox as CNI plugins see it, as libcni's `RuntimeConf`.

    `capability_args` are `portMappings`, `bandwidth`, …; `args` is what CNI_ARGS holds.
    """

    container_id: str
    netns: Path
    capability_args: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)


class CniResult(msgspec.Struct, frozen=True):
    """A sandbox's network as recorded after ADD, with all that DEL needs.

    `network` and `result` are the JSON texts of the network configuration and of the chain's
    result.
    """

    container_id: str = msgspec.field(name="id")
    network: str
    capability_args: dict[str, Any] = msgspec.field(name="arguments")
    args: dict[str, str] = msgspec.field(name="words")
    result: str

    @property
    def addresses(self) -> tuple[str, ...]:
        return addresses_of(msgspec.json.decode(self.result), INTERFACE)


class Plugins:
    """The CNI plugins in a list of directories."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._path = os.pathsep.join(map(str, directories))
        self._environment = {"PATH": os.environ.get("PATH", os.defpath), "CNI_PATH": self._path}

    async def add(self, network: Conflist, conf: RuntimeConf) -> CniResult:
        """Run ADD on the chain. Returns its result.

        Raises CniError after a DEL of the chain, with what both said if that failed too.
        """
        result: Mapping[str, Any] | None = None
        try:
            for plugin in _active_plugins(network, conf):
                stdin = plugin_input(network, plugin, conf.capability_args, result)
                result = await self._call("ADD", plugin["type"], conf, stdin)
                if not is_result(result):
                    raise CniError(
                        f"network plugin {plugin['type']} ADD: not a CNI result: {result}"
                    )
        except CniError as error:
            left = await self._clean_up(network, conf)
            if left and left != str(error):
                raise CniError(f"{error}; the DEL after it failed too: {left}") from error
            raise
        except BaseException:
            if left := await self._clean_up(network, conf):
                log.warning(
                    "network DEL after failed ADD failed", id=conf.container_id, reason=left
                )
            raise
        return _cni_result(network, conf, result or {})

    async def remove(self, result: CniResult, netns: Path | None) -> None:
        """Run DEL on the chain; `netns` is None if the namespace is gone. Raises CniError."""
        network = parse_conflist(result.network.encode(), Path("(saved)"))
        conf = RuntimeConf(
            container_id=result.container_id,
            netns=netns or Path(""),
            capability_args=result.capability_args,
            args=result.args,
        )
        await self._delete(network, conf, msgspec.json.decode(result.result))

    async def _clean_up(self, network: Conflist, conf: RuntimeConf) -> str:
        """Run DEL after a failed ADD. DEL of what was never added is no error.

        Returns why it failed, empty if it did not.
        """
        try:
            await self._delete(network, conf, None)
        except CniError as error:
            return str(error)
        return ""

    async def _delete(
        self, network: Conflist, conf: RuntimeConf, result: Mapping[str, Any] | None
    ) -> None:
        for plugin in reversed(_active_plugins(network, conf)):
            stdin = plugin_input(network, plugin, conf.capability_args, result)
            await self._call("DEL", plugin["type"], conf, stdin)

    async def _call(
        self, command: str, plugin: str, conf: RuntimeConf, stdin: bytes
    ) -> Mapping[str, Any]:
        program = shutil.which(plugin, path=self._path)
        if program is None:
            raise CniError(f"network plugin {plugin} not found in {self._path}")
        untrusted = distrust(Path(program))
        if untrusted is not None:
            raise CniError(f"refusing to run network plugin {plugin}: {untrusted}")
        environment = {
            **self._environment,
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": conf.container_id,
            "CNI_NETNS": "" if conf.netns == Path("") else str(conf.netns),
            "CNI_IFNAME": INTERFACE,
            "CNI_ARGS": ";".join(f"{name}={value}" for name, value in conf.args.items()),
        }
        try:
            answer = await run(
                [program], stdin=stdin, environment=environment, deadline_s=DEADLINE_S
            )
        except CommandError as error:
            raise CniError(f"network plugin {plugin} {command}: {error.why}") from error
        if not answer.is_success:
            raise CniError(f"network plugin {plugin} {command}: {_error_message(answer.output)}")
        return _decode(answer.output)


def _active_plugins(network: Conflist, conf: RuntimeConf) -> list[Mapping[str, Any]]:
    """Return the plugins of a chain that have something to do for a sandbox.

    Without host ports, portmap passes the previous result on, and on DEL asks iptables about rules
    that it never created; bandwidth without limits does the like.
    """
    return [
        plugin
        for plugin in network.plugins
        if plugin["type"] not in _ACTS_ON or conf.capability_args.get(_ACTS_ON[plugin["type"]])
    ]


def result_of_interrupted_add(network: Conflist, conf: RuntimeConf) -> CniResult:
    """Return the input of DEL after an ADD whose result is unknown."""
    return _cni_result(network, conf, {})


def _cni_result(network: Conflist, conf: RuntimeConf, result: Mapping[str, Any]) -> CniResult:
    document = {"name": network.name, "cniVersion": network.version, "plugins": network.plugins}
    return CniResult(
        conf.container_id,
        msgspec.json.encode(document).decode(),
        dict(conf.capability_args),
        dict(conf.args),
        msgspec.json.encode(result).decode(),
    )


def _decode(output: bytes) -> Mapping[str, Any]:
    try:
        result = msgspec.json.decode(output or b"{}")
    except msgspec.DecodeError as error:
        raise CniError(f"network plugin output is not JSON, {output[:200]!r}: {error}") from error
    return result if isinstance(result, dict) else {}


def _error_message(output: bytes) -> str:
    """Return the text of a plugin's error object. Source: CNI specification, "Error"."""
    try:
        document = msgspec.json.decode(output)
    except msgspec.DecodeError:
        return output.decode(errors="replace").strip() or "failed without a message"
    if not isinstance(document, dict):
        return str(document)
    return " ".join(filter(None, (str(document.get("msg", "")), str(document.get("details", "")))))
