"""Print the tables that the pipeline has written. They are ordinary Parquet and CSV files.

python examples/fraud/show.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import csv
from rich.console import Console
from rich.table import Table


def show(console: Console, title: str, rows: list[dict[str, object]], most: int = 8) -> None:
    """Print the first rows."""
    table = Table(title=f"{title}: {len(rows):,} rows", title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name)
    for row in rows[:most]:
        table.add_row(*map(str, row.values()))
    console.print(table)


def main(folder: Path) -> None:
    """Print alerts, risks, watched accounts, and a summary."""
    console = Console()
    alerts = pq.read_table(folder / "out" / "alert").to_pylist()
    risks = pq.read_table(folder / "out" / "risk").to_pylist()
    watched = csv.read_csv(folder / "out" / "watched" / "part-00000.csv").to_pylist()
    bad = [
        line
        for file in (folder / "state" / "quarantine").rglob("*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    epochs = len(list((folder / "out" / "alert-changes").iterdir()))
    show(console, "alert", sorted(alerts, key=lambda row: row["at"], reverse=True))
    show(console, "risk", sorted(risks, key=lambda row: (-row["alerts"], -row["total"])))
    show(console, "watched", watched)
    console.print(
        f"{sum(row['payments'] for row in risks):,} payments of {len(risks):,} accounts;"
        f" {len(alerts):,} alerts, which changed in {epochs} epochs;"
        f" {len(watched):,} links to watch; {len(bad)} quarantined rows"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
