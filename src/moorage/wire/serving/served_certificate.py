"""Served certificate: a pair in files that are replaced while a server runs.

A rotation is used for the next connection; open ones go on.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.wire.serving.tls import server_context

_RELOAD_S = 10.0

log = Log(__name__)


class ServedCertificate:
    """A certificate in files, read again when they change.

    `context` is that of a server. Raises OSError, ssl.SSLError if the files cannot be read.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._state()
        self.context = server_context(certificate, key)

    async def follow(self, clock: Clock) -> None:
        """Look at the files every 10 s until cancelled; files that do not go together are kept
        out, and tried again."""
        while True:
            await clock.sleep(_RELOAD_S)
            self.reload()

    def reload(self) -> None:
        """Read the files if they changed."""
        try:
            state = self._state()
            if state != self._seen:
                # A pair that does not go together would leave the context without any.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
                self.context.load_cert_chain(*self._files)
                self._seen = state
                log.info("certificate read again", file=self._files[0])
        except (OSError, ssl.SSLError) as error:
            log.warning("certificate cannot be read", file=self._files[0], error=error)

    def _state(self) -> list[tuple[int, int, int]]:
        found = [os.stat(file) for file in self._files]
        return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found]
