"""The notebook of the example runs, cell by cell."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fraud"


def test_the_cells_run_in_order(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = json.loads((FOLDER / "fraud.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    monkeypatch.syspath_prepend(FOLDER)  # as Jupyter does
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    try:
        for cell in cells:
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    finally:
        sys.modules.pop("generate", None)
        spark.catalog.dropTempView("fraud_alert")
    assert names["spark"].sparkContext is spark.sparkContext
    out = names["folder"] / "out"
    alerts = pq.read_table(out / "alert").to_pylist()
    streamed = pq.read_table(out / "streamed-alert").to_pylist()
    assert alerts
    assert sorted(map(str, streamed)) == sorted(map(str, alerts))
    shown = capsys.readouterr().out
    assert "epoch 2: " in shown
    assert ", 1 quarantined, " in shown
    assert any(f"|{row['account']}|" in shown.replace(" ", "") for row in alerts)
