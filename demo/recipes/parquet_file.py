"""A long run as a Parquet file, with pyarrow, for pandas, polars or DuckDB.

What fits into memory needs no more than `rec.df().to_parquet("run.parquet")`. This sink holds a batch at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fitting import fit, numbers

import jaxtap as tap

FILE = Path(__file__).parents[1] / "output" / "run.parquet"


class ParquetSink:
    """Writes events to a file, some thousand at a time. Pass it as `on_step=`, and close it: a file has its end last.

    Args:
      path: the file.
      batch: events in each row group.
    """

    def __init__(self, path: Path, batch: int = 5000) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.batch = path, batch
        self.rows: list[dict[str, Any]] = []
        self.writer: pq.ParquetWriter | None = None

    def __call__(self, event: tap.TapEvent) -> None:
        place = {"path": event.path, "step": event.step, "call": event.call, "lane": event.lane, "time": event.time}
        self.rows.append(place | {name: value.tolist() for name, value in event.value.items()})
        if len(self.rows) == self.batch:
            self.flush()

    def flush(self) -> None:
        """Write what there is as one row group. The first one settles the columns."""
        if not self.rows:
            return
        table = pa.Table.from_pylist(self.rows, schema=self.writer.schema if self.writer else None)
        self.writer = self.writer or pq.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)
        self.rows.clear()

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()
        if self.writer:
            self.writer.close()


def main(path: Path = FILE, steps: int = 20_000, batch: int = 5000) -> None:
    with ParquetSink(path, batch) as sink, tap.record(select=numbers, on_step=sink):
        fit(steps)


if __name__ == "__main__":
    main()
    print(pq.ParquetFile(FILE).metadata)
