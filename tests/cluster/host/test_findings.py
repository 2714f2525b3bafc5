from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cluster.host import Cgroups, CniPlugins, Disk, Firewall, Kernel, Layout, Tool
from moorage.cluster.host import findings as doctor
from moorage.cluster.host.findings import Finding, State, can_run_pods, examine, installation_of
from moorage.cluster.host.tools import TOOLS
from moorage.engine.handlers import Handler
from moorage.engine.handlers.search_path import Program
from moorage.engine.handlers.templates import generate
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


NOTHING_BEYOND = "pods reach each other and this host, nothing beyond, and have no host ports"
FREE_SOME = "free some, or choose another directory with --data-dir"
FIRST_KERNELS = "Linux {} is older than 4.19, the oldest that runtimes support"


@pytest.mark.parametrize(
    ("subject", "fields", "state", "meaning", "remedy"),
    [
        ("user", {"is_root": False}, "problem",
         "not root: a control plane works, pods cannot run", "run as root: sudo moor …"),
        ("system", {"system": ALPINE}, "warning",
         "Alpine Linux v3.22 is not Debian or like it: packages have other names, and are not "
         "installed for you", ""),
        ("kernel", {"kernel": Kernel("4.9.0", (4, 9), "x")}, "problem",
         FIRST_KERNELS.format("4.9.0"), "apt-get dist-upgrade, then reboot"),
        ("kernel", {"kernel": Kernel("odd", (0, 0), "x")}, "problem",
         FIRST_KERNELS.format("odd"), "apt-get dist-upgrade, then reboot"),
        ("kernel", {"kernel": Kernel("4.18", (4, 18), "x")}, "problem",
         FIRST_KERNELS.format("4.18"), "apt-get dist-upgrade, then reboot"),
        ("kernel", {"kernel": Kernel("4.19.0", (4, 19), "x")}, "warning",
         "Linux 4.19.0 has no recursive read-only mounts: they came with 5.12", ""),
        ("kernel", {"kernel": Kernel("5.11.9", (5, 11), "x")}, "warning",
         "Linux 5.11.9 has no recursive read-only mounts: they came with 5.12", ""),
        ("kernel", {"kernel": Kernel("5.12.0", (5, 12), "x")}, "ok", "Linux 5.12.0 on x", ""),
        ("capabilities", {"capabilities": frozenset(NEEDED) - {"CAP_KILL", "CAP_CHOWN"}}, "problem",
         "root lacks CAP_CHOWN, CAP_KILL, without which containers cannot be made",
         "run outside a container, or in one with --privileged"),
        ("capabilities", {"capabilities": frozenset(NEEDED)}, "warning",
         "without CAP_SYS_RESOURCE no process gets a lower OOM score than its parent: "
         "sandboxes and guaranteed pods get the engine's own", ""),
        ("capabilities", {"capabilities": frozenset({"CAP_SYS_RESOURCE"}), "is_root": False}, "ok",
         "all required capabilities", ""),
        ("cgroups", {"cgroups": Cgroups(Layout.ABSENT)}, "problem",
         "layout absent, without the controllers cpu, cpuacct, cpuset, memory, pids, devices, "
         "freezer: pods cannot be limited",
         "turn them on in the kernel's command line or for this container, then reboot"),
        ("cgroups", {"cgroups": Cgroups(Layout.HYBRID, V1, Path("/u"), ("hugetlb",))}, "warning",
         "hybrid, with the hugetlb controller on version 2, which crun refuses; moor up moves it "
         "and moves it back",
         "mkdir -p /sys/fs/cgroup/hugetlb && "
         "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb"),
        ("storage", {"disk": Disk(Path("/d"), 9 * GIB, 9 * GIB, overlay=False)}, "warning",
         "overlay mounts don't work on /d: every container gets a copy of its image, which takes "
         "time and space", "choose a directory on ext4 or xfs with --data-dir"),
        ("storage", {"disk": Disk(Path("/d"), 9 * GIB, 9 * GIB, overlay=None)}, "warning",
         "overlay mounts on /d can only be tried as root", ""),
        ("disk", {"disk": Disk(Path("/d"), 2 * GIB, 9 * GIB, overlay=True)}, "ok",
         "2.0 GiB free on /d", ""),
        ("disk", {"disk": Disk(Path("/d"), 2 * GIB - 1, 9 * GIB, overlay=True)}, "warning",
         "2.0 GiB free on /d: images will soon fill it", FREE_SOME),
        ("disk", {"disk": Disk(Path("/d"), GIB // 2, 9 * GIB, overlay=True)}, "warning",
         "0.5 GiB free on /d: images will soon fill it", FREE_SOME),
        ("disk", {"disk": Disk(Path("/d"), GIB // 2 - 1, 9 * GIB, overlay=True)}, "problem",
         "0.5 GiB free on /d: too little to start", FREE_SOME),
        ("engine", {"tools": tools_without("conmon")}, "problem",
         "conmon not found: no engine of our own; a running one can be given with --cri",
         "apt-get install conmon"),
        ("engine", {"tools": tools_without("conmon", "skopeo")}, "problem",
         "conmon, skopeo not found: no engine of our own; a running one can be given with --cri",
         "apt-get install conmon skopeo"),
        ("engine",
         {"tools": tools_without() | {"conmon": Tool(Path("/c"), "", "Segmentation fault")}},
         "problem", "/c does not print its version: Segmentation fault", ""),
        ("network plugins", {"cni": CniPlugins(None)}, "problem",
         "bandwidth, host-local, loopback, portmap, ptp not found: pods get no network",
         "apt-get install containernetworking-plugins"),
        ("network tools", {"tools": tools_without("ip")}, "problem",
         "ip not found: the pods' bridge cannot be made", "apt-get install iproute2"),
        ("iptables", {"firewall": Firewall(is_usable=False, complaint="no nat table")}, "warning",
         f"no nat table: {NOTHING_BEYOND}", ""),
        ("iptables", {"firewall": Firewall(is_usable=False, complaint="not on PATH"),
                      "tools": tools_without("iptables")}, "warning",
         f"not on PATH: {NOTHING_BEYOND}", "apt-get install iptables"),
        ("iptables", {"tools": tools_without("iptables")}, "ok", "usable", ""),
        ("nftables", {"tools": tools_without("nft")}, "warning",
         "nft not found: Services are not routed, and pods that a NetworkPolicy selects do not "
         "start", "apt-get install nftables"),
        ("images", {"tools": tools_without("busybox", "catatonit")}, "warning",
         "neither catatonit nor busybox found: pods that share processes, and those of runtimes "
         "with a kernel of their own, cannot run, nor can the examples",
         "apt-get install catatonit busybox-static"),
        ("images", {"tools": tools_without("busybox")}, "warning",
         "busybox not found: the examples' images cannot be made",
         "apt-get install busybox-static"),
        ("images", {"tools": tools_without("catatonit")}, "ok", "made from busybox", ""),
        ("virtualization", {"has_kvm": False}, "warning",
         "/dev/kvm cannot be opened: no runtime with VMs works", ""),
        ("init", {"has_systemd": False}, "ok", "not systemd", ""),
        ("address", {"has_ipv4_route": False}, "warning",
         "this host has no IPv4 route to others, and pods have IPv4 only: they reach each other "
         "and this host, nothing beyond, and with --cri not the API either", ""),
    ],
)  # fmt: skip
def test_findings(
    subject: str, fields: dict[str, Any], state: str, meaning: str, remedy: str
) -> None:
    finding = findings(**fields)[subject]
    assert finding == Finding(subject, State(state), meaning, remedy)
    assert can_run_pods([finding]) == (state != "problem")


def test_findings_about_a_complete_host_in_order() -> None:
    assert [(finding.subject, finding.meaning) for finding in findings().values()] == [
        ("user", "root"),
        ("system", "Debian GNU/Linux 13 (trixie)"),
        ("kernel", "Linux 6.12.9-amd64 on x86_64"),
        ("capabilities", "all required capabilities"),
        ("cgroups", "layout v2"),
        ("init", "systemd"),
        ("storage", "overlay mounts work on /var/lib"),
        ("disk", "100.0 GiB free on /var/lib"),
        ("engine", "our own, with conmon 1.0.0, skopeo 1.0.0"),
        ("network plugins", "/opt/cni/bin"),
        ("network tools", "iproute2 1.0.0"),
        ("address", "this host has an IPv4 route to others"),
        ("iptables", "1.0.0"),
        ("nftables", "1.0.0"),
        ("images", "made from busybox, catatonit"),
        ("virtualization", "/dev/kvm is usable"),
        ("runtime runc", "1.3; handlers: runc"),
    ]


def absent(handler: str, runtime: str, path: str = "") -> Handler:
    return Handler(
        handler=handler, runtime=runtime, path=path, reason=f"{runtime} is not here", remedy="get"
    )


RUNC_WORKS = ("runtime runc", State.OK, "1.3; handlers: runc", "")


@pytest.mark.parametrize(
    ("handlers", "wanted"),
    [
        ((RUNC,), [RUNC_WORKS]),
        ((RUNC, absent("gvisor", "runsc"), absent("runsc", "runsc")),
         [RUNC_WORKS, ("runtime runsc", State.WARNING,
                       "runsc is not here; no handlers gvisor, runsc", "get")]),
        # Without a runtime for pods that name no class, nothing works.
        ((absent("runc", "runc"), absent("crun", "crun"), absent("kata", "kata")),
         [("runtime runc", State.PROBLEM, "runc is not here; no handlers runc", "get"),
          ("runtime crun", State.PROBLEM, "crun is not here; no handlers crun", "get"),
          ("runtime kata", State.WARNING, "kata is not here; no handlers kata", "get")]),
        ((RUNC, absent("crun", "crun", "/broken")),
         [RUNC_WORKS,
          ("runtime crun", State.WARNING, "crun is not here; no handlers crun", "get")]),
        # Only expected runtimes are missed; another that is there and broken is reported.
        ((RUNC, absent("y", "youki")), [RUNC_WORKS]),
        ((RUNC, absent("y", "youki", "/y")),
         [RUNC_WORKS, ("runtime youki", State.WARNING, "youki is not here; no handlers y", "get")]),
    ],
)  # fmt: skip
def test_runtimes(handlers: tuple[Handler, ...], wanted: list[tuple[str, State, str, str]]) -> None:
    by_subject = findings(*handlers)
    runtimes = [finding for name, finding in by_subject.items() if name.startswith("runtime ")]
    assert runtimes == [Finding(*values) for values in wanted]


def test_unknown_package_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="emacs"):
        installation_of("emacs")


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


def test_each_file_that_an_engine_runs_or_reads_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "odd.toml"
    file.touch()

    def distrust(path: Path) -> Any:
        return SimpleNamespace(path=path, problem="is bad", remedy=f"fix {path}")

    monkeypatch.setattr(doctor, "distrust", distrust)
    host = a_host(tools=tools_without(*(TOOLS.keys() - {"crun", "runc"})))
    found = [entry for entry in examine(host, (RUNC,), (tmp_path,)) if "refused" in entry.meaning]
    paths = {
        "handler file": file,
        "program runc": Path("/usr/bin/runc"),
        "program crun": Path("/usr/bin/crun"),
        "network plugins": Path("/opt/cni/bin"),
    }
    assert found == [
        Finding(subject, State.WARNING, f"{path} is refused: {path} is bad", f"fix {path}")
        for subject, path in paths.items()
    ]
    bare = a_host(cni=CniPlugins(None), tools={})
    assert not any("refused" in entry.meaning for entry in examine(bare, (RUNC,)))
