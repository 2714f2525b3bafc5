"""SBOM of the image: its Debian and Python packages, as SPDX 2.3 in JSON.

Pure. Source: SPDX specification 2.3, package URL specification.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from tools.image.debian import Package
from tools.image.tree import Tree

PATH = "usr/share/sbom/moorage.spdx.json"
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9.-]")
_IMAGE_ID = "SPDXRef-image"


def write_sbom(
    name: str, version: str, packages: Iterable[Package], tree: Tree, moment: int
) -> bytes:
    """Return the document of an image with these Debian packages, and the Python ones of a tree."""
    described = [_debian(package) for package in packages] + list(_python(tree))
    image = {
        "SPDXID": _IMAGE_ID,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "CONTAINER",
    }
    relationships = [
        {
            "spdxElementId": "SPDXRef-DOCUMENT",
            "relatedSpdxElement": _IMAGE_ID,
            "relationshipType": "DESCRIBES",
        },
        *(
            {
                "spdxElementId": _IMAGE_ID,
                "relatedSpdxElement": package["SPDXID"],
                "relationshipType": "CONTAINS",
            }
            for package in described
        ),
    ]
    content = json.dumps([image, described], sort_keys=True).encode()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:sha256:{hashlib.sha256(content).hexdigest()}",
        "creationInfo": {
            "created": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: moorage-image-{version}"],
        },
        "packages": [image, *described],
        "relationships": relationships,
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _debian(package: Package) -> dict[str, Any]:
    address = (
        f"pkg:deb/debian/{quote(package.name)}@{quote(package.version, safe='')}"
        f"?arch={package.architecture}&distro=bookworm"
    )
    described = _package(f"deb-{package.name}", package.name, package.version, address)
    return described | {"sourceInfo": f"built package from: {package.source}"}


def _python(tree: Tree) -> Iterable[dict[str, Any]]:
    """Yield the Python packages by the METADATA of each. Source: Core metadata specifications."""
    for path, entry in tree.items():
        place = PurePosixPath(path)
        if place.name != "METADATA" or not place.parent.name.endswith(".dist-info"):
            continue
        fields = HeaderParser().parsestr((entry.content or b"").decode())
        name, version = fields["Name"], fields["Version"]
        address = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{quote(version, safe='')}"
        declared = fields.get("License-Expression", "NOASSERTION")
        yield _package(f"pypi-{name}", name, version, address) | {"licenseDeclared": declared}


def _package(identity: str, name: str, version: str, address: str) -> dict[str, Any]:
    return {
        "SPDXID": f"SPDXRef-{_NOT_IN_ID.sub('-', identity)}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": address,
            }
        ],
    }
