"""Runs CNI plugins: a chain adds a sandbox to a network, the same chain backwards takes it off.

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
from moorage.handlers.command import CommandError, run
from moorage.linux.trust import distrust

INTERFACE = "eth0"
DEADLINE_S = 60.0

log = Log(__name__)


class CniError(FailedError):
    """A plugin refused, failed, or is not there; the text has its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom a chain works for. `id` is the CNI's container id; `arguments` its capability
    arguments (`portMappings`, `bandwidth`, …), `words` those in CNI_ARGS.
    """

    id: str
    netns: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


class CniResult(msgspec.Struct, frozen=True):
    """What taking a sandbox off its network needs to know: which network, and the last answer.

    `network` and `result` are the JSON texts of the configuration and of the chain's answer.
    """

    id: str
    network: str
    arguments: dict[str, Any]
    words: dict[str, str]
    result: str

    @property
    def addresses(self) -> tuple[str, ...]:
        return addresses_of(msgspec.json.decode(self.result), INTERFACE)


class Plugins:
    """The plugins of some directories."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._path = os.pathsep.join(map(str, directories))
        self._environment = {"PATH": os.environ.get("PATH", os.defpath), "CNI_PATH": self._path}

    async def add(self, network: Conflist, subject: Subject) -> CniResult:
        """Run the chain; what it gave. Raises CniError, and nothing stays of it then."""
        result: Mapping[str, Any] | None = None
        try:
            for plugin in _concerned(network, subject):
                given = plugin_input(network, plugin, subject.arguments, result)
                result = await self._call("ADD", plugin["type"], subject, given)
                if not is_result(result):
                    raise CniError(f"network plugin {plugin['type']} ADD: no result but {result}")
        except BaseException:
            await self._undo(network, subject)
            raise
        return _attachment(network, subject, result or {})

    async def remove(self, attachment: CniResult, netns: Path | None) -> None:
        """Run the chain backwards; for a namespace that is gone already too. Raises CniError."""
        network = parse_conflist(attachment.network.encode(), Path("(saved)"))
        subject = Subject(
            id=attachment.id,
            netns=netns or Path(""),
            arguments=attachment.arguments,
            words=attachment.words,
        )
        await self._remove(network, subject, msgspec.json.decode(attachment.result))

    async def _undo(self, network: Conflist, subject: Subject) -> None:
        """Take off what an interrupted chain had added; what is not there is no error."""
        try:
            await self._remove(network, subject, None)
        except CniError as error:
            # The failure that led here is the one to tell.
            log.warning("a network that failed cannot be taken off", id=subject.id, reason=error)

    async def _remove(
        self, network: Conflist, subject: Subject, result: Mapping[str, Any] | None
    ) -> None:
        for plugin in reversed(_concerned(network, subject)):
            given = plugin_input(network, plugin, subject.arguments, result)
            await self._call("DEL", plugin["type"], subject, given)

    async def _call(
        self, command: str, kind: str, subject: Subject, given: bytes
    ) -> Mapping[str, Any]:
        program = shutil.which(kind, path=self._path)
        if program is None:
            raise CniError(f"the network plugin {kind} is not in {self._path}")
        found = distrust(Path(program))
        if found is not None:
            raise CniError(f"the network plugin {kind} is not run: {found}")
        environment = {
            **self._environment,
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": subject.id,
            "CNI_NETNS": "" if subject.netns == Path("") else str(subject.netns),
            "CNI_IFNAME": INTERFACE,
            "CNI_ARGS": ";".join(f"{name}={value}" for name, value in subject.words.items()),
        }
        try:
            answer = await run(
                [program], given=given, environment=environment, deadline_s=DEADLINE_S
            )
        except CommandError as error:
            raise CniError(f"network plugin {kind} {command}: {error.why}") from error
        if not answer.is_success:
            raise CniError(f"network plugin {kind} {command}: {_complaint(answer.output)}")
        return _decoded(answer.output)


def _concerned(network: Conflist, subject: Subject) -> list[Mapping[str, Any]]:
    """The plugins of a chain that have something to do for a sandbox.

    portmap without host ports hands on what came before it, and at the end asks iptables about
    rules that it never made.
    """
    has_ports = bool(subject.arguments.get("portMappings"))
    return [each for each in network.plugins if has_ports or each["type"] != "portmap"]


def unanswered(network: Conflist, subject: Subject) -> CniResult:
    """An attachment that was begun and of which no answer is known."""
    return _attachment(network, subject, {})


def _attachment(network: Conflist, subject: Subject, result: Mapping[str, Any]) -> CniResult:
    document = {"name": network.name, "cniVersion": network.version, "plugins": network.plugins}
    return CniResult(
        subject.id,
        msgspec.json.encode(document).decode(),
        dict(subject.arguments),
        dict(subject.words),
        msgspec.json.encode(result).decode(),
    )


def _decoded(output: bytes) -> Mapping[str, Any]:
    try:
        result = msgspec.json.decode(output or b"{}")
    except msgspec.DecodeError as error:
        raise CniError(f"a network plugin answered {output[:200]!r}: {error}") from error
    return result if isinstance(result, dict) else {}


def _complaint(output: bytes) -> str:
    """A plugin's error object in words. Source: CNI specification, "Error"."""
    try:
        told = msgspec.json.decode(output)
    except msgspec.DecodeError:
        return output.decode(errors="replace").strip() or "failed without a word"
    if not isinstance(told, dict):
        return str(told)
    return " ".join(filter(None, (str(told.get("msg", "")), str(told.get("details", "")))))
