"""Known OCI runtimes: their program names, and how the engine drives them.

A runtime is an entry of `KNOWN_RUNTIMES`; its handler names are those that a RuntimeClass may use.
The engine drives it through its command line, or through the shim that it is. Sources: the
runtimes' own installation pages, containerd's "runtime v2" naming (`io.containerd.NAME.vN` is the
program `containerd-shim-NAME-vN`), KEP-585's examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RUNC_SHIM = "io.containerd.runc.v2"
"""The containerd shim of runc and of runtimes with the same command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One runtime. `handlers` are its handler names, its own name first.

    `shim_type` is containerd's runtime type. `is_shim` says that the program itself is the shim, so
    that there is no command line to drive; `is_gvisor` that its command line is runsc's. `package`
    is the Debian package; without one, `source` is the download page. `configurations` are
    candidate paths, one of which must exist for the runtime to match its name. `annotations` are
    globs of the pod annotations that it understands, `platform` the platform of its images if it is
    not the host's. `class_handler` is the handler that gets a class by itself where several are the
    same; empty for the first.
    """

    name: str
    program: str
    handlers: tuple[str, ...]
    shim_type: str = RUNC_SHIM
    is_shim: bool = False
    is_gvisor: bool = False
    version_arguments: tuple[str, ...] = ("--version",)
    package: str = ""
    source: str = ""
    needs_kvm: bool = False
    annotations: tuple[str, ...] = ()
    platform: str = ""
    configurations: tuple[Path, ...] = ()
    can_be_default: bool = False
    class_handler: str = ""
    needs_hugetlb_with_v1: bool = False
    """Fails on a hybrid cgroup layout whose hugetlb controller is on version 2."""

    @property
    def handlers_by_preference(self) -> tuple[str, ...]:
        """The handler names, that of the class first."""
        return tuple(sorted(self.handlers, key=lambda name: name != self.class_handler))


_KATA_DIRECTORIES = (
    Path("/etc/kata-containers"),
    Path("/opt/kata/share/defaults/kata-containers"),
    Path("/usr/share/defaults/kata-containers"),
)
_KATA_SOURCE = "https://github.com/kata-containers/kata-containers/releases"
_RUNWASI_SOURCE = "https://github.com/containerd/runwasi/releases"


_KATA_RUST_SHIM = "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2"
_KATA_RUST = "-runtime-rs"


def _kata(hypervisor: str) -> Runtime:
    """Return Kata with one hypervisor; names that end in `-runtime-rs` are of the Rust shim.

    kata-deploy writes a directory of configuration for each shim: `runtimes/SHIM`.
    """
    file_name = f"configuration-{hypervisor}.toml"
    is_rust = hypervisor.endswith(_KATA_RUST)
    below = (Path(f"runtimes/{hypervisor}"), Path("runtime-rs" if is_rust else "."))
    return Runtime(
        name=f"kata-{hypervisor}",
        program=_KATA_RUST_SHIM if is_rust else "containerd-shim-kata-v2",
        handlers=(f"kata-{hypervisor}",),
        shim_type="io.containerd.kata.v2",
        is_shim=True,
        source=_KATA_SOURCE,
        needs_kvm=True,
        # Kata's configuration decides which of these it accepts; `config_path` would replace that
        # file.
        annotations=("io.katacontainers.config.*",),
        # The administrator's own file is first.
        configurations=(
            _KATA_DIRECTORIES[0] / file_name,
            *(directory / place / file_name for directory in _KATA_DIRECTORIES for place in below),
        ),
    )


def _wasm(engine: str, shim: str, source: str = _RUNWASI_SOURCE) -> Runtime:
    return Runtime(
        name=engine,
        program=f"containerd-shim-{shim}",
        handlers=(engine,),
        shim_type=f"io.containerd.{shim.replace('-', '.')}",
        is_shim=True,
        version_arguments=("-v",),
        source=source,
        platform="wasi/wasm",
    )


KNOWN_RUNTIMES: tuple[Runtime, ...] = (
    Runtime(
        name="runc",
        program="runc",
        handlers=("runc",),
        package="runc",
        can_be_default=True,
    ),
    Runtime(
        name="crun",
        program="crun",
        handlers=("crun",),
        package="crun",
        can_be_default=True,
        needs_hugetlb_with_v1=True,
        # Not `run.oci.*`: with those a pod replaces its seccomp filter, has a library of the host
        # loaded into crun, or has crun connect to a socket of the host. Source: crun(1).
        annotations=("module.wasm.image/*",),
    ),
    Runtime(
        name="youki",
        program="youki",
        handlers=("youki",),
        source="https://github.com/youki-dev/youki/releases",
        can_be_default=True,
    ),
    Runtime(
        name="runsc",
        program="runsc",
        handlers=("runsc", "gvisor"),
        class_handler="gvisor",
        is_gvisor=True,
        # These share mounts; the others name host files or change runsc's own flags.
        annotations=("dev.gvisor.spec.mount.*",),
        shim_type="io.containerd.runsc.v1",
        package="runsc",
    ),
    Runtime(
        name="kata",
        program="containerd-shim-kata-v2",
        handlers=("kata", "kata-containers"),
        shim_type="io.containerd.kata.v2",
        is_shim=True,
        source=_KATA_SOURCE,
        needs_kvm=True,
        # Kata's configuration decides which of these it accepts; `config_path` would replace that
        # file.
        annotations=("io.katacontainers.config.*",),
    ),
    _kata("qemu"),
    _kata("clh"),
    _kata("fc"),
    *(_kata(f"{hypervisor}{_KATA_RUST}") for hypervisor in ("qemu", "clh", "dragonball")),
    _wasm("wasmtime", "wasmtime-v1"),
    _wasm("wasmedge", "wasmedge-v1"),
    _wasm("wasmer", "wasmer-v1"),
    _wasm("spin", "spin-v2", "https://github.com/spinframework/containerd-shim-spin/releases"),
    Runtime(
        name="nvidia",
        program="nvidia-container-runtime",
        handlers=("nvidia",),
        source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit",
    ),
)
