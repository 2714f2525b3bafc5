"""Program that builds the image: layers whose bytes depend on their files alone, and the SBOM."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from tools.image import layout, sbom
from tools.image.debian import Package, add_base, is_taken, placed
from tools.image.python import add_compiled
from tools.image.tree import Tree, write_layer

MOMENT = 1_700_000_000


def tree(*paths: str) -> Tree:
    made = Tree()
    for path in paths:
        made.add_file(path, path.encode())
    made.complete()
    return made


def test_a_layer_depends_on_its_files_and_not_on_their_order() -> None:
    first, second = write_layer(tree("b/c", "a"), MOMENT), write_layer(tree("a", "b/c"), MOMENT)
    assert first == second
    assert gzip.decompress(first[1]) == first[0]
    with tarfile.open(fileobj=io.BytesIO(first[0])) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["a", "b", "b/c"]
    assert {(member.mtime, member.uid, member.gid) for member in members} == {(MOMENT, 0, 0)}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("./lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"),
        ("./usr/bin/nsenter", "usr/bin/nsenter"),
        ("./lib", "lib"),
        ("./", ""),
    ],
)
def test_files_of_packages_are_below_usr(name: str, path: str) -> None:
    assert placed(name) == path


def test_licences_are_kept_and_other_documentation_is_not() -> None:
    assert is_taken("usr/share/doc/libc6/copyright", ())
    assert not is_taken("usr/share/doc/libc6/changelog.Debian.gz", ())
    assert is_taken("usr/bin/nsenter", ("usr/bin/nsenter",))
    assert not is_taken("usr/bin/lsblk", ("usr/bin/nsenter",))


def test_the_base_has_a_bundle_of_certificates_and_a_place_for_tokens() -> None:
    made = Tree()
    for name in ("b", "a"):
        made.add_file(f"usr/share/ca-certificates/mozilla/{name}.crt", f"{name}\n".encode())
    made.add_file("usr/bin/python3.11", b"elf", 0o755)
    package = Package("libc6", "2.36", "amd64", "glibc", "Package: libc6\nVersion: 2.36\n")
    add_base(made, [package])
    assert made["etc/ssl/certs/ca-certificates.crt"].content == b"a\nb\n"
    assert not made["var/run"].target
    status = made["var/lib/dpkg/status"].content
    assert status == b"Package: libc6\nStatus: install ok installed\nVersion: 2.36\n\n"


def test_modules_are_compiled_the_same_each_time_and_are_not_compared_at_a_start() -> None:
    compiled = []
    for _ in range(2):
        made = Tree()
        made.add_file("usr/lib/python3.11/m.py", b"x = 'text'\ndef f():\n    return x\n")
        made.add_file("usr/lib/python3.11/broken.py", b"{{ template }")
        add_compiled(made)
        compiled.append(dict(made.items()))
    assert compiled[0] == compiled[1]
    (path,) = [name for name in compiled[0] if name.endswith(".pyc")]
    content = compiled[0][path].content
    assert content is not None
    # The flags behind the magic number: by hash, unchecked. Source: PEP 552.
    assert int.from_bytes(content[4:8], "little") == 0b01
    assert b"/usr/lib/python3.11/m.py" in content


def test_compiled_modules_have_their_directories_when_a_tree_is_written(tmp_path: Path) -> None:
    made = Tree()
    made.add_file("usr/lib/m.py", b"x = 1\n")
    made.complete()
    add_compiled(made)
    made.write(tmp_path)
    (compiled,) = (tmp_path / "usr/lib/__pycache__").iterdir()
    assert made[f"usr/lib/__pycache__/{compiled.name}"].content == compiled.read_bytes()
    assert {name for name, _ in made.items()} >= {"usr", "usr/lib/__pycache__"}


def test_the_sbom_names_debian_and_python_packages() -> None:
    made = Tree()
    made.add_file(
        "usr/local/lib/python3.11/dist-packages/PyYAML-6.0.dist-info/METADATA",
        b"Metadata-Version: 2.4\nName: PyYAML\nVersion: 6.0\nLicense-Expression: MIT\n\nText\n",
    )
    package = Package("libstdc++6", "12.2.0-14", "arm64", "gcc-12", "")
    content = sbom.write_sbom("moorage", "1.0", [package], made, MOMENT)
    assert content == sbom.write_sbom("moorage", "1.0", [package], made, MOMENT)
    document = json.loads(content)
    assert document["spdxVersion"] == "SPDX-2.3"
    assert document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    addresses = [
        reference["referenceLocator"]
        for one in document["packages"]
        for reference in one.get("externalRefs", [])
    ]
    assert addresses == [
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=arm64&distro=bookworm",
        "pkg:pypi/pyyaml@6.0",
    ]
    identities = [one["SPDXID"] for one in document["packages"]]
    assert len(set(identities)) == len(identities)
    related = {one["relatedSpdxElement"] for one in document["relationships"]}
    assert related == set(identities)


def test_the_archive_is_one_that_engines_load(tmp_path: Path) -> None:
    plain, packed = write_layer(tree("a"), MOMENT)
    described = layout.configuration("arm64", "1.0", [plain], MOMENT)
    layout.write_archive(tmp_path / "i.tar", "moorage.local/m:1", "arm64", described, [packed])
    with tarfile.open(tmp_path / "i.tar") as archive:
        names = archive.getnames()
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
    assert names[:2] == ["oci-layout", "index.json"]
    (entry,) = index["manifests"]
    assert entry["platform"] == {"architecture": "arm64", "os": "linux"}
    assert json.loads(described)["config"]["User"] == "65532:65532"


def test_an_archive_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "i.tar"
    target.write_bytes(b"before")

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(layout, "add_blob", broken)
    with pytest.raises(OSError, match="disk full"):
        layout.write_archive(target, "moorage.local/m:1", "arm64", b"{}", [b""])
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]
