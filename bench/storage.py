"""Durable writes a second, alone and in groups: `.venv/bin/python bench/storage.py [DIR]`.

Each write is acknowledged after its fsync. Printed against plain SQLite inserts of the same rows,
one commit each, on the same disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from moorage.apiserver.storage import SqliteStore

VALUE = b"x" * 1500
SECONDS = 2.0


async def rate(directory: Path, writers: int) -> float:
    """Writes a second by that many concurrent writers."""
    count = 0
    async with SqliteStore(directory / f"{writers}.db") as store:
        end = time.perf_counter() + SECONDS

        async def write(worker: int) -> None:
            nonlocal count
            number = 0
            while time.perf_counter() < end:
                await store.put(f"pods/default/{worker}-{number}", VALUE, 0)
                number += 1
                count += 1

        await asyncio.gather(*(write(worker) for worker in range(writers)))
    return count / SECONDS


def plain_rate(directory: Path) -> float:
    connection = sqlite3.connect(directory / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT, value BLOB)")
    count, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        connection.execute("INSERT INTO log (key, value) VALUES (?, ?)", (str(count), VALUE))
        count += 1
    return count / SECONDS


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        directory = Path(scratch)
        plain = plain_rate(directory)
        print(f"plain SQLite, one commit a row  {plain:9,.0f} rows/s")
        for writers in (1, 8, 32, 128):
            result = asyncio.run(rate(directory, writers))
            print(
                f"store, {writers:3d} writers               {result:9,.0f} rows/s"
                f"  {result / plain:5.2f} x"
            )


if __name__ == "__main__":
    main()
