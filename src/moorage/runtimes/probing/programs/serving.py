"""Serving: a program that stays, and greets every client of its port."""

from __future__ import annotations

import struct

from moorage.runtimes.probing.programs.script import Script

PORT = 7000
GREETING = "moorage\n"

_AF_INET, _SOCK_STREAM = 2, 1


def write(script: Script) -> None:
    """Write the program. It never ends by itself."""
    server = script.call("socket", _AF_INET, _SOCK_STREAM, 0)
    address = struct.pack(">HH12x", 0x0200, PORT)
    script.report("bind", script.call("bind", server, address, 16))
    script.report("listen", script.call("listen", server, 8))
    script.print_reports()
    content = GREETING.encode()
    with script.endless():
        connection = script.call("accept4", server, 0, 0, 0)
        script.call("write", connection, content, len(content))
        script.call("close", connection)
