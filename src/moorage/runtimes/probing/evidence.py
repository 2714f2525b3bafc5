"""Evidence of a handler: the results of its probes, and the facts of its node."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec

from moorage.runtimes.probing.carrier import Outcome, ProbeResult
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import ProgramOutput, architectures, parse_output
from moorage.runtimes.probing.suite import PLAIN

_MESSAGE_LIMIT = 400
# Names and ids that differ each time must not make a finding a new one.
_RANDOM = re.compile(r"probe-[a-z0-9-]*[0-9a-f]{8}|\b[0-9a-f]{8,}\b|\bpid \d+")


class Evidence(msgspec.Struct, frozen=True, dict=True):
    """Results by the name of their probe, `PROBE/STEP` for steps of a kept one."""

    host: HostFacts
    results: dict[str, ProbeResult]

    def result(self, probe: str) -> ProbeResult | None:
        """Return a probe's result, None if it was not run."""
        return self.results.get(probe)

    def output(self, probe: str) -> ProgramOutput:
        """Return the output of a probe's program; empty without a result."""
        return self._outputs.get(probe, ProgramOutput())

    @property
    def has_programs(self) -> bool:
        """Whether there are probe programs for the node's architecture."""
        return self.host.architecture in architectures()

    @property
    def kernel(self) -> str:
        """Return the kernel's version as a container sees it; empty if unknown."""
        words = self.output(PLAIN).section("/proc/version").split()
        return words[2] if len(words) > 2 else ""

    @cached_property
    def _outputs(self) -> dict[str, ProgramOutput]:
        return {
            name: parse_output(result.output)
            for name, result in self.results.items()
            if result.outcome is Outcome.ENDED
        }


def stable_text(text: str) -> str:
    """Return an engine's text without what differs each time, on one line and shortened."""
    line = _RANDOM.sub("…", " ".join(text.split()))
    return line if len(line) <= _MESSAGE_LIMIT else f"{line[: _MESSAGE_LIMIT - 1]}…"


def facts_of(result: ProbeResult) -> dict[str, Any]:
    """Return a result for people: how it ended, and the first lines of its output."""
    return {
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "error": result.error,
        "output": result.output,
    }
