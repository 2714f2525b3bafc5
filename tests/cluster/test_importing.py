"""Import of a program without the authorities of the system, which are there after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.certificates import certificate_pem

_PROGRAM = """
import ssl
from moorage.cluster.importing import import_program
connector = import_program("aiohttp.connector")
contexts = (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED)
for context in (*contexts, ssl.create_default_context()):
    print(context.cert_store_stats()["x509"])
"""


def test_only_what_is_imported_has_no_authorities(tmp_path: Path) -> None:
    authorities = tmp_path / "authorities.crt"
    authorities.write_bytes(certificate_pem("authority", is_authority=True))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True,
        env={**os.environ, "SSL_CERT_FILE": str(authorities), "SSL_CERT_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == ["0", "0", "1"]
