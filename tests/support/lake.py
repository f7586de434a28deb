"""What a lake's archive holds, as somebody reads it who knows Spark's file sink: the files that its manifest names, and
no others, since what a driver wrote before it was killed lies beside them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.event_record import RECORD


def manifest(folder: Path) -> list[Path]:
    """The files that the sink has committed to `folder`, in the order of its batches."""
    batches: dict[int, Path] = {}
    compacted = -1
    for path in (folder / "_spark_metadata").glob("*"):
        number, _, kind = path.name.partition(".")
        if number.isdecimal() and kind in ("", "compact"):
            batches[int(number)] = path
            if kind:
                compacted = max(compacted, int(number))
    found = []
    for batch in sorted(batch for batch in batches if batch >= compacted):
        version, *lines = batches[batch].read_text().splitlines()
        assert version == "v1", f"{batches[batch]} is of {version}"
        found += [json.loads(line) for line in lines]
    assert all(line["action"] == "add" for line in found), "a file was taken out"
    return [Path(unquote(urlparse(line["path"]).path)) for line in found]


_STORED = {
    "at_ms": 'epoch_ms("at")',
    "expires_at_ms": "epoch_ms(expires_at)",
    "namespace": "coalesce(namespace_exact, namespace)",
}
"""Of columns that are stored in another way."""


class Archive:
    """The archived events in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[Path, int] = {}

    def count(self) -> int:
        """How many there are, by the footers of the files."""
        try:
            files = manifest(self._folder)
        except FileNotFoundError:
            # The manifest is being compacted.
            return sum(self._rows.values())
        for path in files:
            if path not in self._rows:
                self._rows[path] = pq.ParquetFile(path).metadata.num_rows
        return sum(self._rows[path] for path in files)

    def events(self) -> pa.Table:
        """All of them, with the columns of RECORD, in no order."""
        with self._opened() as db:
            columns = ", ".join(
                f"{_STORED[name]} AS {name}" if name in _STORED else f'"{name}"' for name in RECORD.names
            )
            return db.sql(f"SELECT {columns} FROM archive").to_arrow_table()

    def misplaced(self) -> list[str]:
        """Events in the folder of another day than theirs, by UTC."""
        with self._opened() as db:
            found = db.sql(
                'SELECT date, "at" FROM archive WHERE epoch_ms("at") // 86400000 <> epoch_ms(date) // 86400000'
            )
            return [
                f"{len(rows)} events in the folder of another day: {rows[0]}" for rows in [found.fetchall()] if rows
            ]

    def _opened(self) -> duckdb.DuckDBPyConnection:
        db = duckdb.connect()
        _view(db, "archive", self._folder, "{'date': DATE, 'namespace': VARCHAR}")
        return db


def table(folder: Path, *instants: str) -> pa.Table:
    """All rows of a table of the lake that has days as folders; each of the `instants` also as its milliseconds."""
    with duckdb.connect() as db:
        _view(db, "stored", folder, "{'date': DATE}")
        also = "".join(f', epoch_ms("{name}") AS {name}_ms' for name in instants)
        return db.sql(f"SELECT *{also} FROM stored").to_arrow_table()


def _view(db: duckdb.DuckDBPyConnection, name: str, folder: Path, types: str) -> None:
    db.execute("SET TimeZone = 'UTC'")
    files = ", ".join("'" + str(path).replace("'", "''") + "'" for path in manifest(folder))
    db.execute(f"CREATE VIEW {name} AS FROM read_parquet([{files}], hive_partitioning = true, hive_types = {types})")
