"""What images a machine's programs give."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.images import BUSYBOX, NGINX_STAND_IN, PAUSE, Image, NoPauseError, catalogue
from moorage.cluster.images.catalogue import Busybox, Directory, File, HardLink, images_from
from moorage.linux.program import Platform, Program
from moorage.runtimes.probing.programs import PROBE_IMAGE, program_files
from tests.cluster.images.programs import PT_INTERP, elf

module = sys.modules["moorage.cluster.images.catalogue"]
CATATONIT = Program(b"catatonit", Platform("amd64"))
BOX = Busybox(Program(b"busybox", Platform("amd64")), ("busybox", "sh", "sleep", "httpd"))


def by_name(images: tuple[Image, ...]) -> dict[str, Image]:
    return {image.name: image for image in images}


def paths(layer: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return set(archive.getnames())


def test_both_programs_give_four_images_that_share_a_layer() -> None:
    images_by_name = by_name(images_from(BOX, CATATONIT))
    assert set(images_by_name) == {PAUSE, BUSYBOX, NGINX_STAND_IN, PROBE_IMAGE}
    assert images_by_name[PAUSE].entrypoint == ("/pause", "-P")
    assert images_by_name[NGINX_STAND_IN].layers[0] is images_by_name[BUSYBOX].layers[0]
    assert {"bin/sh", "bin/httpd", "usr/bin/env", "tmp", "etc/passwd"} <= paths(
        images_by_name[BUSYBOX].layers[0]
    )
    assert images_by_name[PROBE_IMAGE].layers[0] is images_by_name[BUSYBOX].layers[0]
    assert paths(images_by_name[NGINX_STAND_IN].layers[1]) >= {"usr/bin/serve", "www/index.html"}


def test_without_catatonit_busybox_holds_the_namespaces() -> None:
    pause = by_name(images_from(BOX, None))[PAUSE]
    assert pause.entrypoint[:2] == ("/bin/sh", "-c")
    assert "bin/sleep" in paths(pause.layers[0])


def test_without_busybox_there_is_pause_alone() -> None:
    assert [image.name for image in images_from(None, CATATONIT)] == [PAUSE]


def test_without_either_there_is_nothing() -> None:
    with pytest.raises(NoPauseError, match="neither"):
        images_from(None, None)


def test_every_image_names_its_description_and_platform() -> None:
    for image in images_from(BOX, CATATONIT):
        image_config = json.loads(image.configuration)
        assert image_config["config"]["Labels"]["org.opencontainers.image.description"]
        assert image_config["architecture"] == "amd64"


async def test_unusable_programs_are_named_in_the_error(tmp_path: Path) -> None:
    dynamic = tmp_path / "catatonit"
    dynamic.write_bytes(elf(kinds=(PT_INTERP,)))
    with pytest.raises(NoPauseError) as caught:
        await catalogue(None, dynamic)
    assert "catatonit needs libraries" in str(caught.value)
    assert "busybox is not on PATH" in str(caught.value)


async def test_a_busybox_that_does_not_run_leaves_the_rest(tmp_path: Path) -> None:
    # A header without a program behind it: read well, executed never.
    busybox, catatonit = tmp_path / "busybox", tmp_path / "catatonit"
    for path in (busybox, catatonit):
        path.write_bytes(elf())
        path.chmod(0o755)
    assert [image.name for image in await catalogue(busybox, catatonit)] == [PAUSE]


def test_what_is_in_each_image() -> None:
    program = Program(b"elf", Platform("arm64", "v8"))
    box = Busybox(program, ("busybox", "ls", "env"))
    files = module.busybox_files(box)
    assert files["bin/busybox"] == File(b"elf", 0o755)
    assert files["bin/ls"] == files["usr/bin/env"] == HardLink("bin/busybox")
    server = module.server_files()
    assert set(server) == {"usr/bin/serve", "www/index.html"}
    written: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "write_layer", lambda files: (written.append(files), b"l")[1])
        by_busybox = module.busybox_pause(box)
        by_catatonit = module.catatonit_pause(program)
    assert written == [
        {"bin/busybox": File(b"elf", 0o755), "bin/sh": HardLink("bin/busybox"),
         "bin/sleep": HardLink("bin/busybox")},
        {"pause": File(b"elf", 0o755)},
    ]  # fmt: skip
    assert by_busybox.entrypoint[:2] == ("/bin/sh", "-c")
    assert by_catatonit.entrypoint == ("/pause", "-P")
    for image in (by_busybox, by_catatonit):
        assert (image.name, image.layers) == (PAUSE, (b"l",))
        assert image.platform == Platform("arm64", "v8")


PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
BASE = b"the system"


def test_how_each_image_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_layer(files: dict[str, Any]) -> bytes:
        return BASE if "etc/passwd" in files else " ".join(sorted(files)).encode()

    monkeypatch.setattr(module, "write_layer", write_layer)
    platform = Platform("amd64")
    pause = Image(
        name="moorage.local/pause:1",
        platform=platform,
        layers=(b"pause",),
        entrypoint=("/pause", "-P"),
        description="catatonit, from the host's package, holding a pod's namespaces",
    )
    busybox_pause = Image(
        name="moorage.local/pause:1",
        platform=platform,
        layers=(b"bin/busybox bin/sh bin/sleep",),
        entrypoint=(
            "/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 2147483 & wait; done"
        ),
        environment=PATH,
        description="busybox, from the host's package, holding a pod's namespaces",
    )  # fmt: skip
    others = (
        Image(
            name="moorage.local/busybox:1",
            platform=platform,
            layers=(BASE,),
            command=("sh",),
            environment=PATH,
            description="busybox, from the host's package",
        ),
        Image(
            name="moorage.local/nginx-stand-in:1",
            platform=platform,
            layers=(BASE, b"usr/bin/serve www/index.html"),
            command=("/usr/bin/serve",),
            environment=PATH,
            ports=("80/tcp",),
            description="busybox httpd with one page, standing in for nginx",
        ),
        Image(
            name="moorage.local/probe:1",
            platform=platform,
            layers=(BASE, " ".join(sorted(program_files(platform.architecture))).encode()),
            command=("sh",),
            environment=PATH,
            description="busybox, and the programs that probe runtime handlers",
        ),
    )
    assert images_from(BOX, CATATONIT) == (pause, *others)
    assert images_from(BOX, None) == (busybox_pause, *others)
    assert images_from(None, CATATONIT) == (pause,)


def test_the_files_of_the_system() -> None:
    files = module.busybox_files(Busybox(Program(b"elf", Platform("amd64")), ("busybox", "ls")))
    assert files == {
        **{name: Directory(0o755) for name in (
            "dev", "home", "proc", "sys", "usr/bin", "usr/sbin", "var/log",
        )},
        "root": Directory(0o700),
        "tmp": Directory(0o1777),
        "etc/passwd": File(
            b"root:x:0:0:root:/root:/bin/sh\n"
            b"nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n", 0o644,
        ),
        "etc/group": File(b"root:x:0:\ntty:x:5:\nnogroup:x:65534:\n", 0o644),
        "bin/busybox": File(b"elf", 0o755),
        "bin/ls": HardLink("bin/busybox"),
        "usr/bin/env": HardLink("bin/busybox"),
    }  # fmt: skip
    serve, page = module.server_files().values()
    assert serve.mode == 0o755
    assert serve.content.decode().splitlines() == [
        "#!/bin/sh",
        "httpd -f -v -p 80 -h /www &",
        "trap 'kill $!; exit 0' TERM QUIT INT",
        "wait",
    ]
    assert page.mode == 0o644
    assert b"<h1>Stand-in for nginx</h1>" in page.content
