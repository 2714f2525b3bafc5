"""Verdicts on features, from outputs of probes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.runtime_profiles import SUPPORTED, UNKNOWN, UNSUPPORTED
from moorage.probing.carrier import Outcome, ProbeResult
from moorage.probing.evidence import Evidence, stable_text
from moorage.probing.host import HostFacts
from moorage.probing.programs.capabilities import OPERATIONS
from moorage.probing.programs.system_calls import CALLS
from moorage.probing.suite import MEMORY_BYTES, PROBES
from moorage.probing.verdicts import READINGS, findings, profile_features
from moorage.runtimeclass.features import CAPABILITIES, FEATURES, SYSTEM_CALLS

_HOST = HostFacts(
    kernel="6.1.0",
    boot_id="host",
    architecture="amd64",
    cpu_count=4,
    interfaces=("lo", "eth0"),
    first_process="systemd",
    ipc_namespace="ipc:[1]",
    security_modules=("apparmor",),
    devices=("/dev/zero",),
    shares_mounts=True,
)
_PLAIN = (
    "== /proc/version\nLinux version 6.1.0\n== /proc/sys/kernel/random/boot_id\nhost\n"
    "== /proc/self/status\nCapEff:\t00000000a80425fb\n== /proc/net/dev\n lo: 1\n eth0: 2\n"
    "== results\nkeyctl 0000000000000001\ngetpid 0000000000000001\n"
)


def _ended(output: str, exit_code: int = 0, reason: str = "") -> ProbeResult:
    return ProbeResult(outcome=Outcome.ENDED, exit_code=exit_code, output=output, reason=reason)


def _results(**values: int) -> ProbeResult:
    lines = [f"{name} {value & 0xFFFFFFFFFFFFFFFF:016x}" for name, value in values.items()]
    return _ended("\n".join(["== results", *lines]))


def _state(feature: str, results: dict[str, ProbeResult]) -> tuple[str, str]:
    named = {name.replace("__", "/").replace("_", "-"): one for name, one in results.items()}
    evidence = Evidence(_HOST, {"plain": _ended(_PLAIN), **named})
    finding = findings(evidence)[feature]
    return finding.state, finding.message


def test_every_feature_of_the_vocabulary_has_a_reading_of_probes_that_exist() -> None:
    assert READINGS.keys() == FEATURES.keys()
    for reading in READINGS.values():
        assert {probe.partition("/")[0] for probe in reading.probes} <= PROBES.keys()
    assert CALLS.keys() == set(SYSTEM_CALLS)
    assert OPERATIONS.keys() <= set(CAPABILITIES)


_REFUSED = ProbeResult(outcome=Outcome.REFUSED, error="no such thing")
_CUT_OFF = ProbeResult(outcome=Outcome.CUT_OFF, error="it did not end within 20 s")
_CANNOT = ProbeResult(outcome=Outcome.UNSUPPORTED, error="a pod cannot limit its processes")


@pytest.mark.parametrize(
    ("feature", "results", "state", "message"),
    [
        ("syscall-statx", {"system_calls": _results(statx=-22)}, UNSUPPORTED, "EINVAL"),
        ("syscall-statx", {"system_calls": _results(statx=0)}, SUPPORTED, "succeeds"),
        ("syscall-futex-waitv", {"system_calls": _results(futex_waitv=-11)}, SUPPORTED, ""),
        ("syscall-bpf", {"system_calls": _results(**{"bpf": 0, "bpf.end": 31})}, UNSUPPORTED,
         "signal 31"),
        ("syscall-bpf", {"system_calls": _ended("", 1)}, UNSUPPORTED, "status 1"),
        ("blocking-reads", {"networks": _results(**{"accept-0": 3, "read-0": -11})}, UNSUPPORTED,
         "EAGAIN"),
        ("raw-sockets", {"networks": _results(raw=-97)}, UNSUPPORTED, "EAFNOSUPPORT"),
        ("seccomp", {"seccomp": _results(keyctl=-1)}, SUPPORTED, "keyctl"),
        ("seccomp", {"seccomp": _results(keyctl=1)}, UNSUPPORTED, "no call is denied"),
        ("memory-limit", {"memory": _ended("", 137, "OOMKilled")}, SUPPORTED, "OOMKilled"),
        ("memory-limit", {"memory": _results(taken=1 << 40)}, UNSUPPORTED, "went on"),
        ("memory-limit", {"memory": _results(taken=-12)}, SUPPORTED, "ENOMEM"),
        ("pids-limit", {"processes": _ended("", 137)}, SUPPORTED, "137"),
        ("pids-limit", {"processes": _results(**{"doubling-0": 5, "doubling-7": -11})}, SUPPORTED,
         "EAGAIN"),
        ("pids-limit", {"processes": _results(**{"doubling-7": 9})}, UNSUPPORTED, "more"),
        ("cpu-limit", {"cpu_small": _results(work=10), "cpu_large": _results(work=100)},
         SUPPORTED, ""),
        ("cpu-limit", {"cpu_small": _results(work=99), "cpu_large": _results(work=100)},
         UNSUPPORTED, ""),
        ("cpu-limit", {"cpu_small": _results(work=70), "cpu_large": _results(work=100)},
         UNKNOWN, "busy"),
        ("cpu-limit-visible", {"limited": _results(**{"affinity-bytes": 8, "affinity-0": 1})},
         SUPPORTED, "1 processors"),
        ("cpu-limit-visible", {"limited": _results(**{"affinity-bytes": 8, "affinity-0": 15})},
         UNSUPPORTED, "4 processors"),
        ("memory-limit-visible",
         {"limited": _results(**{"sysinfo": 0, "total-memory": MEMORY_BYTES, "memory-unit": 1})},
         SUPPORTED, ""),
        ("terminal", {"terminal": _results(terminal=-25)}, UNSUPPORTED, "ENOTTY"),
        ("host-pid", {"host_pid": _ended("== /proc/1/comm\nsystemd\n== results\ngetpid 0a\n")},
         SUPPORTED, "systemd"),
        ("host-pid", {"host_pid": _ended("== /proc/1/comm\nfacts\n== results\ngetpid 01\n")},
         UNSUPPORTED, "facts"),
        ("host-ipc", {"host_ipc": _ended("== /proc/self/ns/ipc\nipc:[1]\n")}, SUPPORTED, ""),
        ("host-ipc", {"host_ipc": _ended("== /proc/self/ns/ipc\nipc:[2]\n")}, UNSUPPORTED, ""),
        ("host-network", {"host_network": _ended("== /proc/net/dev\n lo: 1\n eth0: 1\n")},
         SUPPORTED, "eth0"),
        ("user-namespaces", {"user_namespace": _ended("== /proc/self/uid_map\n 0 65536 65536\n")},
         SUPPORTED, "mapped"),
        ("user-namespaces", {"user_namespace": _REFUSED}, UNSUPPORTED, "no such thing"),
        ("recursive-read-only-mounts",
         {"recursive_mount": _results(**{"submount": 0, "submount-flags": 0})}, UNSUPPORTED,
         "writable"),
        ("recursive-read-only-mounts",
         {"recursive_mount": _results(**{"submount": 0, "submount-flags": 33})}, SUPPORTED,
         "read-only"),
        ("capability-chown",
         {"capabilities": _ended("== /proc/self/status\nCapEff: 1\n== results\nCHOWN 00\n")},
         SUPPORTED, "permitted"),
        ("capability-kill",
         {"capabilities": _ended("== /proc/self/status\nCapEff: 1\n== results\nKILL 00\n")},
         UNSUPPORTED, "effective set"),
        ("exec", {"kept": _ended(""), "kept__exec": _results(getpid=7)}, SUPPORTED, ""),
        ("exec", {"kept": _REFUSED}, UNSUPPORTED, "refused"),
        ("port-forward", {"kept": _ended(""), "kept__fetch": _ended("moorage\n")}, SUPPORTED, ""),
        ("terminal", {"terminal": _CUT_OFF}, UNKNOWN, "cut off"),
        ("pids-limit", {"processes": _CANNOT}, UNKNOWN, "cannot limit"),
        ("terminal", {}, UNKNOWN, "not run"),
        ("gpu", {}, UNSUPPORTED, "no GPU"),
        ("selinux", {}, UNSUPPORTED, "no SELinux"),
    ],
)  # fmt: skip
def test_findings(feature: str, results: dict[str, ProbeResult], state: str, message: str) -> None:
    found = _state(feature, results)
    assert found[0] == state, found
    assert message in found[1]


def test_without_programs_for_the_architecture_everything_is_unknown() -> None:
    host = HostFacts(kernel="6.1.0", boot_id="host", architecture="s390x")
    found = findings(Evidence(host, {}))
    assert {finding.state for finding in found.values()} == {UNKNOWN}
    assert "s390x" in found["exec"].message


_OUTCOMES = st.builds(
    ProbeResult,
    outcome=st.sampled_from(Outcome),
    exit_code=st.integers(0, 255),
    output=st.text() | st.just(_PLAIN),
    error=st.text(),
    reason=st.sampled_from(["", "OOMKilled", "Error"]),
)
_PROBE_NAMES = sorted({probe for reading in READINGS.values() for probe in reading.probes})


@given(st.dictionaries(st.sampled_from(_PROBE_NAMES), _OUTCOMES))
def test_whatever_probes_print_there_is_one_finding_with_one_line_for_each_feature(
    results: dict[str, ProbeResult],
) -> None:
    evidence = Evidence(_HOST, results)
    features = profile_features(findings(evidence))
    assert [feature.name for feature in features] == list(FEATURES)
    for feature in features:
        assert feature.state in (SUPPORTED, UNSUPPORTED, UNKNOWN)
        assert feature.message
        assert len(feature.message) <= 1024
        assert len(feature.message.splitlines()) == 1


@given(st.text(max_size=2000))
def test_texts_of_engines_become_one_short_line(text: str) -> None:
    assert len(stable_text(text).splitlines()) <= 1
    assert len(stable_text(text)) <= 400


def test_ids_and_names_of_probes_are_left_out_of_findings() -> None:
    once = "sandbox 5f2a9c00d1e2 of probe-crun-0a1b2c3d failed, pid 77"
    again = "sandbox 9f2a9c00d1e2 of probe-crun-ffffffff failed, pid 78"
    assert stable_text(once) == stable_text(again)
