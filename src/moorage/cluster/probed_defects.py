"""Defects of runtime handlers that probes have found on this machine.

They take the place of what is known by version: the same program may behave otherwise on another
kernel or platform.
"""

from __future__ import annotations

from pathlib import Path

from moorage.api.runtime_profiles import UNSUPPORTED
from moorage.cluster.layout import PROBE_RESULTS
from moorage.handlers.defects import GVISOR_REMEDY, Defect
from moorage.probing.cache import ProbeCache, ProbedHandler

# Features whose lack stops programs that ask for nothing special → what stops.
_MEANINGS = {
    "syscall-statx": "`ls` and `stat` of Debian 12 and other images with coreutils 9 fail "
    '("Invalid argument"); busybox images work',
    "blocking-reads": "a server that reads before its client has sent may fail",
    "exec": "`kubectl exec` and exec probes fail",
}
_REMEDY = "use another runtime, or another version of this one, and another class until then"
_GVISOR = "runsc"


def probed_defect(program: str) -> Defect | None:
    """Return the defect that probes found of a program; None where it was not probed as it is.

    Blocks for some file reads.
    """
    cache = ProbeCache(PROBE_RESULTS)
    digest = f"sha256:{cache.load_digests().of(Path(program))}"
    for probed in cache.all():
        if (probed.program, probed.digest) == (program, digest) and probed.features:
            return defect_of(probed)
    return None


def defect_of(probed: ProbedHandler) -> Defect:
    """Return what the findings of a handler mean for ordinary programs; empty without a defect."""
    lacking = [
        f"{feature.message}, so {_MEANINGS[feature.name]}"
        for feature in probed.features
        if feature.state == UNSUPPORTED and feature.name in _MEANINGS
    ]
    if not lacking:
        return Defect()
    remedy = GVISOR_REMEDY if Path(probed.program).name == _GVISOR else _REMEDY
    return Defect(f"probes found: {'; '.join(sorted(lacking))}", remedy)
