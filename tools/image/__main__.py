"""Program of `make image`: builds the image of an architecture.

python -m tools.image --arch arm64 --output build/image
python -m tools.image --rootfs /image           # its files alone, for the Dockerfile
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from moorage import __version__
from moorage.linux.atomic_file import replace_file
from moorage.runtimes.probing.programs import program_files
from tools.image import debian, layout, python, sbom
from tools.image.tree import PROGRAM_MODE, Tree, write_layer

NAME = f"moorage.local/moorage:{__version__}"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MIB = 1024 * 1024


def main() -> int:
    own = _ARCHITECTURES.get(platform.machine(), "amd64")
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("--arch", choices=sorted(_ARCHITECTURES.values()), default=own)
    parser.add_argument("--output", type=Path, default=Path("build/image"))
    parser.add_argument("--rootfs", type=Path, help="write the files into this directory only")
    options = parser.parse_args()
    try:
        base, parts, document = build_trees(options.arch, options.output.absolute())
    except (debian.PackageError, python.BuildError) as error:
        print(f"image is not built: {error}", file=sys.stderr)
        return 1
    if options.rootfs is not None:
        options.rootfs.mkdir(parents=True, exist_ok=True)
        for tree in (base, parts):
            tree.write(options.rootfs)
        return 0
    moment = source_date()
    layers = [write_layer(tree, moment) for tree in (base, parts)]
    described = layout.configuration(
        options.arch, __version__, [plain for plain, _ in layers], moment
    )
    target = options.output / f"moorage-{__version__}-{options.arch}.tar"
    packed = [compressed for _, compressed in layers]
    name = layout.write_archive(target, NAME, options.arch, described, packed)
    replace_file(target.with_suffix(".spdx.json"), document, mode=0o644)
    plain_bytes = sum(len(plain) for plain, _ in layers)
    print(
        f"{target}: {NAME}, {target.stat().st_size / _MIB:.1f} MiB, unpacked "
        f"{plain_bytes / _MIB:.1f} MiB, {name}"
    )
    return 0


def build_trees(architecture: str, place: Path) -> tuple[Tree, Tree, bytes]:
    """Return the trees of both layers, and the SBOM. Raises PackageError, BuildError."""
    moment = source_date()
    base, parts = Tree(), Tree()
    files = debian.fetch(architecture, place / architecture)
    packages = [debian.unpack(file, base) for file in files]
    debian.add_base(base, packages)
    base.complete()
    wheel = python.build_wheel(place / "wheel", moment)
    with tempfile.TemporaryDirectory() as directory:
        python.install(architecture, wheel, Path(directory))
        python.add_packages(parts, Path(directory))
    for tree in (base, parts):
        python.add_compiled(tree)
    for path, content in program_files(architecture).items():
        parts.add_file(path, content, PROGRAM_MODE)
    # Where the DaemonSet and the Deployments mount what is not in the image.
    for path in ("certificates", "var/lib/moorage-agent", "etc/containerd", "etc/crio"):
        parts.add_directory(path)
    document = sbom.write_sbom("moorage", __version__, packages, parts, moment)
    parts.add_file(sbom.PATH, document)
    parts.complete()
    # Directories of both layers are the base's.
    for path, entry in parts.items():
        if path in base and entry.content is None and not entry.target:
            parts.add_directory(path, base[path].mode)
    return base, parts, document


def source_date() -> int:
    """Return the moment of all files: SOURCE_DATE_EPOCH, else that of the last commit."""
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    if chosen:
        return int(chosen)
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=python.REPOSITORY, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
