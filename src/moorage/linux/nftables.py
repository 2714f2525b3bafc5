"""nftables: packet filter rules of the kernel, changed by scripts in the language of nft(8).

By libnftables, in this process: a change of one element takes a tenth of a millisecond, where a
call of the program takes fifty. A script is a transaction: the kernel applies it whole or not at
all. Source: libnftables(3), libnftables-json(5).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from typing import Final

from moorage.linux.nftables_events import rule_handles

LIBRARY: Final = "libnftables.so.1"
PACKAGE: Final = "libnftables1"
_MESSAGE_CHARS = 600


class NftablesError(Exception):
    """The kernel or the library refused a script; the text is theirs."""


class NftablesMissingError(NftablesError):
    """The library is not installed."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"{LIBRARY} cannot be loaded: {reason}; apt-get install {PACKAGE}")


class Nftables:
    """The packet filter of this thread's network namespace. Calls block, one at a time."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Load the library. Raises NftablesMissingError."""
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NftablesMissingError(error) from error
        _declare(self._library)
        self._lock = threading.Lock()
        self._context = ctypes.c_void_p(self._library.nft_ctx_new(0))
        if not self._context:
            raise NftablesMissingError("no context")
        self._library.nft_ctx_buffer_output(self._context)
        self._library.nft_ctx_buffer_error(self._context)

    def run(self, script: str) -> str:
        """Run a script, and return what it lists. Raises NftablesError; nothing is changed then."""
        with self._lock:
            status = self._library.nft_run_cmd_from_buffer(self._context, script.encode())
            output = self._library.nft_ctx_get_output_buffer(self._context)
            message = self._library.nft_ctx_get_error_buffer(self._context)
        if status:
            # The library repeats the line of the script, which may be long.
            raise NftablesError(message.decode(errors="replace").strip()[:_MESSAGE_CHARS])
        return str(output.decode(errors="replace"))

    def rules(self, family: str, table: str, chains: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of the rules in chains, none for what is missing."""
        try:
            return rule_handles(family, table, chains)
        except OSError as error:
            raise NftablesError(str(error)) from error

    def close(self) -> None:
        """Release the library's context; it must not be used any more."""
        with self._lock:
            self._library.nft_ctx_free(self._context)
            self._context = ctypes.c_void_p()


def _declare(library: ctypes.CDLL) -> None:
    context, text = ctypes.c_void_p, ctypes.c_char_p
    library.nft_ctx_new.argtypes, library.nft_ctx_new.restype = [ctypes.c_uint32], context
    library.nft_ctx_free.argtypes, library.nft_ctx_free.restype = [context], None
    library.nft_run_cmd_from_buffer.argtypes = [context, text]
    for name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
        getattr(library, name).argtypes = [context]
    for name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
        getattr(library, name).argtypes, getattr(library, name).restype = [context], text
