from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.doctor import Finding, State, _installation, can_run_pods, examine
from moorage.cluster.host import Cgroups, CniPlugins, Disk, Firewall, Kernel, Layout, Tool
from moorage.handlers import Handler
from moorage.handlers.program_probe import Program
from moorage.handlers.templates import generate
from moorage.linux.capabilities import NEEDED
from moorage.linux.cgroups import NEEDED_ON_V1
from tests.cluster.hosts import ALPINE, GIB, a_host, tools_without

RUNC = Handler(handler="runc", runtime="runc", path="/r", version="1.3", available=True)
V1 = dict.fromkeys(NEEDED_ON_V1, Path("/x"))


def findings(*handlers: Handler, **fields: Any) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine(a_host(**fields), handlers or (RUNC,))}


def test_complete_host_needs_no_remedy() -> None:
    by_subject = findings()
    assert {finding.state for finding in by_subject.values()} == {State.OK}
    assert can_run_pods(by_subject.values())
    assert not any(finding.remedy for finding in by_subject.values())


def test_a_runtime_with_a_known_defect_is_a_warning_with_the_remedy() -> None:
    old = Handler(
        handler="gvisor", runtime="runsc", path="/usr/bin/runsc", version="0.0~20221219.0",
        available=True, defect="statx fails", defect_remedy="install a newer one",
    )  # fmt: skip
    finding = findings(RUNC, old)["runtime runsc"]
    assert finding == Finding(
        "runtime runsc",
        State.WARNING,
        "0.0~20221219.0; handlers: gvisor; statx fails",
        "install a newer one",
    )


@pytest.mark.parametrize(
    ("subject", "fields", "state", "meaning", "remedy"),
    [
        ("user", {"is_root": False}, "problem", "not root", "sudo moor"),
        ("system", {"system": ALPINE}, "warning", "not Debian", ""),
        ("kernel", {"kernel": Kernel("4.9.0", (4, 9), "x")}, "problem", "older than 4.19", "dist"),
        ("kernel", {"kernel": Kernel("5.4.0", (5, 4), "x")}, "warning", "5.12", ""),
        ("kernel", {"kernel": Kernel("odd", (0, 0), "x")}, "problem", "odd", "dist"),
        ("capabilities", {"capabilities": frozenset()}, "problem", "CAP_SYS_ADMIN", "privileged"),
        ("capabilities", {"capabilities": frozenset(NEEDED)}, "warning", "OOM score", ""),
        ("cgroups", {"cgroups": Cgroups(Layout.ABSENT)}, "problem", "layout absent", "reboot"),
        ("cgroups", {"cgroups": Cgroups(Layout.HYBRID, V1, Path("/u"), ("hugetlb",))}, "warning",
         "moor up moves it", "mount -t cgroup"),
        ("storage", {"disk": Disk(Path("/d"), 9 * GIB, 9 * GIB, overlay=False)}, "warning",
         "copy of its image", "--data-dir"),
        ("storage", {"disk": Disk(Path("/d"), 9 * GIB, 9 * GIB, overlay=None)}, "warning",
         "tried as root", ""),
        ("disk", {"disk": Disk(Path("/d"), GIB, 9 * GIB, overlay=True)}, "warning", "1.0 GiB",
         "free some"),
        ("disk", {"disk": Disk(Path("/d"), 0, 9 * GIB, overlay=True)}, "problem", "too little",
         "free some"),
        ("engine", {"tools": tools_without("conmon")}, "problem", "conmon not found",
         "apt-get install conmon"),
        ("engine", {"tools": tools_without("conmon", "skopeo")}, "problem", "--cri",
         "apt-get install conmon skopeo"),
        ("engine",
         {"tools": tools_without() | {"conmon": Tool(Path("/c"), "", "Segmentation fault")}},
         "problem", "Segmentation fault", ""),
        ("network plugins", {"cni": CniPlugins(None)}, "problem", "bridge, host-local",
         "containernetworking-plugins"),
        ("network tools", {"tools": tools_without("ip")}, "problem", "ip not found", "iproute2"),
        ("iptables", {"firewall": Firewall(is_usable=False, complaint="no nat table")}, "warning",
         "no nat table: pods reach each other", ""),
        ("iptables", {"firewall": Firewall(is_usable=False, complaint="not on PATH"),
                      "tools": tools_without("iptables")}, "warning", "not on PATH",
         "apt-get install iptables"),
        ("images", {"tools": tools_without("busybox", "catatonit")}, "warning", "share processes",
         "catatonit busybox-static"),
        ("images", {"tools": tools_without("busybox")}, "warning", "examples", "busybox-static"),
        ("images", {"tools": tools_without("catatonit")}, "ok", "made from busybox", ""),
        ("virtualization", {"has_kvm": False}, "warning", "/dev/kvm", ""),
        ("init", {"has_systemd": False}, "ok", "not systemd", ""),
        ("address", {"has_ipv4_route": False}, "warning", "no IPv4 route", ""),
    ],
)  # fmt: skip
def test_findings(
    subject: str, fields: dict[str, Any], state: str, meaning: str, remedy: str
) -> None:
    finding = findings(**fields)[subject]
    assert finding.state == state
    assert meaning in finding.meaning
    assert remedy in finding.remedy
    assert bool(remedy) == bool(finding.remedy)
    assert can_run_pods([finding]) == (state != "problem")


def absent(handler: str, runtime: str, path: str = "") -> Handler:
    return Handler(
        handler=handler, runtime=runtime, path=path, reason=f"{runtime} is not here", remedy="get"
    )


@pytest.mark.parametrize(
    ("handlers", "states"),
    [
        ((RUNC,), {"runc": State.OK}),
        ((RUNC, absent("gvisor", "runsc"), absent("runsc", "runsc")),
         {"runc": State.OK, "runsc": State.WARNING}),
        # Without a runtime for pods that name no class, nothing works.
        ((absent("runc", "runc"), absent("crun", "crun")),
         {"runc": State.PROBLEM, "crun": State.PROBLEM}),
        ((RUNC, absent("crun", "crun", "/broken")), {"runc": State.OK, "crun": State.WARNING}),
    ],
)  # fmt: skip
def test_runtimes(handlers: tuple[Handler, ...], states: dict[str, State]) -> None:
    by_subject = findings(*handlers)
    runtimes = {
        subject.removeprefix("runtime "): finding.state
        for subject, finding in by_subject.items()
        if subject.startswith("runtime ")
    }
    assert runtimes == states


def test_unknown_package_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="emacs"):
        _installation("emacs")


def test_files_that_others_can_write_are_named_with_what_to_do(tmp_path: Path) -> None:
    handlers = tmp_path / "handlers.d"
    handlers.mkdir()
    file = handlers / "odd.toml"
    file.touch()
    file.chmod(0o666)
    by_subject = {finding.subject: finding for finding in examine(a_host(), (RUNC,), (handlers,))}
    assert by_subject["handler file"] == Finding(
        "handler file",
        State.WARNING,
        f"{file} is refused: {file} can be written by others (mode 0666)",
        f"chmod go-w {file}",
    )


CURRENT = generate({"crun": Program(Path("/usr/bin/crun"))})["crun"]


def of_earlier_version(pattern: str) -> str:
    return CURRENT.replace('["module.wasm.image/*"]', f'["module.wasm.image/*", "{pattern}"]')


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (CURRENT, ""),
        (of_earlier_version("run.oci.*"), "run.oci.*"),
        (of_earlier_version("run.*"), "run.*"),
        (of_earlier_version("io.katacontainers.*"), "io.katacontainers.*"),
        (of_earlier_version("run.oci.*") + "enabled = false\n", ""),
        # An administrator's own file says what they want.
        (of_earlier_version("run.oci.*").partition("\n")[2], ""),
        ("# found when Moorage started.\nbroken", ""),
    ],
)
def test_generated_files_of_an_earlier_version_are_named(
    tmp_path: Path, text: str, pattern: str
) -> None:
    file = tmp_path / "crun.toml"
    file.write_text(text)
    file.chmod(0o600)
    by_subject = {entry.subject: entry for entry in examine(a_host(), (RUNC,), (tmp_path,))}
    finding = by_subject.get("handler file crun.toml")
    if not pattern:
        assert finding is None
        return
    assert finding is not None
    assert finding.state is State.WARNING
    assert f"passes the pods' annotations {pattern} to the runtime" in finding.meaning
    assert finding.remedy.startswith(f"rm {file}, and `moor down --keep-pods` and `moor up`")
