from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from moorage.engine.errors import FailedError
from moorage.engine.images.skopeo import Skopeo, is_loopback, registries_file
from moorage.wire.cri.reference import parse
from tests.engine.handlers.programs import program


@pytest.mark.parametrize(
    ("registry", "wanted"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.3.4.5", True),
        ("[::1]:5000", True),
        ("docker.io", False),
        ("10.0.0.1:5000", False),
        ("localhost.example", False),
    ],
)
def test_a_registry_on_this_machine_is_known(registry: str, wanted: bool) -> None:
    assert is_loopback(registry) is wanted


def test_mirrors_are_spelled_for_the_program() -> None:
    text = registries_file({"docker.io": "http://m:5000/hub/", 'q"': "https://n"})
    assert tomllib.loads(text)["registry"] == [
        {
            "prefix": "docker.io",
            "location": "docker.io",
            "mirror": [{"location": "m:5000/hub", "insecure": True}],
        },
        {"prefix": 'q"', "location": 'q"', "mirror": [{"location": "n", "insecure": False}]},
    ]


async def test_the_program_gets_what_leads_it_to_the_registry_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {
        name: f"/{name}"
        for name in (
            "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
            "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
        )
    }  # fmt: skip
    for name, value in {**wanted, "REGISTRY_AUTH_FILE": "/secret", "XDG_RUNTIME_DIR": "/x"}.items():
        monkeypatch.setenv(name, value)
    skopeo = Skopeo(program(tmp_path, "skopeo", "exec env"), tmp_path, {}, stall_s=60)
    text = await skopeo.manifest(parse("registry.example/app:1"), None, "app")
    mapping = dict(line.split("=", 1) for line in text.decode().splitlines())
    assert {name: mapping.get(name) for name in wanted} == wanted
    assert "PATH" in mapping
    assert not {"REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"} & mapping.keys()


async def test_how_the_program_is_asked_for_a_manifest(tmp_path: Path) -> None:
    """Never with the logins of the user who started the engine; plain HTTP only to this host."""
    skopeo = Skopeo(
        program(tmp_path, "skopeo", 'printf "%s\\n" "$@"'), tmp_path,
        {"registry.example": "http://mirror"}, stall_s=60,
    )  # fmt: skip
    skopeo.configure()
    words = (await skopeo.manifest(parse("registry.example/app:1"), None, "app")).decode().split()
    assert words[:4] == [
        "--tmpdir", str(tmp_path), "--registries-conf", str(tmp_path / "registries.conf"),
    ]  # fmt: skip
    assert (tmp_path / "registries.conf").is_file()
    assert words[-4:] == ["inspect", "--raw", "--no-creds", "docker://registry.example/app:1"]
    auth = tmp_path / "auth.json"
    words = (await skopeo.configuration(parse("localhost:5/a:1"), auth, "a")).decode().split()
    assert words[-7:] == [
        "inspect", "--raw", "--config", "--authfile", str(auth), "--tls-verify=false",
        "docker://localhost:5/a:1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("is_oci", "form"),
    [(True, "--preserve-digests"), (False, "--dest-oci-accept-uncompressed-layers")],
)
async def test_how_the_program_is_asked_for_blobs(tmp_path: Path, is_oci: bool, form: str) -> None:
    asked, auth = tmp_path / "asked", tmp_path / "auth.json"
    skopeo = Skopeo(
        program(tmp_path, "skopeo", f'printf "%s\\n" "$@" >{asked}'), tmp_path, {}, stall_s=60
    )
    for reference, credentials, source in (
        ("registry.example/app:1", None, ["--src-no-creds"]),
        ("localhost:5/app:1", auth, ["--src-authfile", str(auth), "--src-tls-verify=false"]),
    ):
        await skopeo.copy(
            parse(reference), credentials, tmp_path / "d", "app", is_oci=is_oci, size_bytes=1
        )
        words = asked.read_text().split()
        assert words[words.index("copy") :] == [
            "copy", "--quiet", form, *source, "--dest-shared-blob-dir", str(tmp_path / "d/blobs"),
            f"docker://{reference}", f"oci:{tmp_path / 'd/layout'}:image",
        ]  # fmt: skip
        assert words[:2] == ["--tmpdir", str(tmp_path)]
        assert "--registries-conf" not in words


async def test_a_registry_that_sends_more_than_its_manifest_says_is_stopped(tmp_path: Path) -> None:
    """Skopeo compares sizes once a blob is whole, which one without an end never is."""
    layout = tmp_path / "d/layout"
    layout.mkdir(parents=True)
    endless = f"head -c 17M /dev/zero >{layout}/oci-put-blob1; exec sleep 1000"
    skopeo = Skopeo(program(tmp_path, "skopeo", endless), tmp_path, {}, stall_s=60)
    with pytest.raises(FailedError, match=r"\"app\": the registry sends more than the 100 bytes"):
        await skopeo.copy(
            parse("localhost:5/a:1"), None, tmp_path / "d", "app", is_oci=True, size_bytes=100
        )


async def test_a_blob_that_grows_slowly_is_progress(tmp_path: Path) -> None:
    """Skopeo writes a blob beside the layout, and moves it to the others once it is whole."""
    layout = tmp_path / "d/layout"
    layout.mkdir(parents=True)
    grows = f"for n in 1 2 3 4 5 6 7 8 9 10; do echo $n >>{layout}/oci-put-blob1; sleep 0.3; done"
    skopeo = Skopeo(program(tmp_path, "skopeo", grows), tmp_path, {}, stall_s=1.5)
    await skopeo.copy(
        parse("localhost:5/a:1"), None, tmp_path / "d", "app", is_oci=True, size_bytes=100
    )
