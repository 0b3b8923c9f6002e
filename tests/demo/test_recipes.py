"""What each recipe shows or writes is what the loop has told."""

from __future__ import annotations

import importlib
import io
from pathlib import Path

import pytest
from fitting import fit, numbers

import jaxtap as tap

STEPS = 2000


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, float]]:
    """The numbers of each step, by a plain recorder."""
    with tap.record(select=numbers) as rec:
        fit(STEPS)
    return [{name: float(value) for name, value in event.value.items()} for event in rec.events]


def test_tqdm(recorded: list[dict[str, float]]) -> None:
    shown = io.StringIO()
    bar = importlib.import_module("tqdm_bar").main(STEPS, file=shown).bar
    assert (bar.n, bar.total) == (STEPS, STEPS)
    assert shown.getvalue().rstrip().endswith(f"loss={recorded[-1]['loss']:.4g}]")


def test_rich(recorded: list[dict[str, float]]) -> None:
    console = importlib.import_module("rich.console").Console(file=io.StringIO(), force_terminal=True, width=100)
    importlib.import_module("rich_live").main(console, STEPS)
    last = [line for line in console.file.getvalue().splitlines() if "scan[0]" in line][-1]
    values = [f"{value:.4g}" for value in recorded[-1].values()]
    assert [cell.strip() for cell in last.split("│")[1:-1]] == ["scan[0]", str(STEPS - 1), str(STEPS), *values]


def test_tensorboard(recorded: list[dict[str, float]], tmp_path: Path) -> None:
    importlib.import_module("tensorboard_log").main(tmp_path, STEPS)
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    scalars = reader.EventAccumulator(str(tmp_path)).Reload()
    assert scalars.Tags()["scalars"] == ["scan0/gradient_norm", "scan0/loss"]
    found = {each.step: each.value for each in scalars.Scalars("scan0/loss")}
    assert found == pytest.approx({step: recorded[step]["loss"] for step in range(0, STEPS, 10)})


def test_matplotlib(recorded: list[dict[str, float]], tmp_path: Path) -> None:
    importlib.import_module("matplotlib.pyplot").switch_backend("agg")
    curve, _ = importlib.import_module("matplotlib_live").main(tmp_path / "live.png", STEPS)
    steps, losses = curve.line.get_data()
    assert list(steps) == list(range(STEPS)) and list(losses) == [row["loss"] for row in recorded]
    assert curve.count >= 2 and (tmp_path / "live.png").stat().st_size > 5000


def test_prometheus(recorded: list[dict[str, float]], tmp_path: Path) -> None:
    importlib.import_module("prometheus_text").main(tmp_path / "jaxtap.prom", STEPS)
    parse = importlib.import_module("prometheus_client.parser").text_string_to_metric_families
    families = parse((tmp_path / "jaxtap.prom").read_text(encoding="utf-8"))
    samples = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
    assert samples["jaxtap_steps_total", "scan[0]"] == STEPS
    assert {name: samples["jaxtap_value", "scan[0]", name] for name in recorded[-1]} == recorded[-1]


def test_parquet(recorded: list[dict[str, float]], tmp_path: Path) -> None:
    importlib.import_module("parquet_file").main(tmp_path / "run.parquet", STEPS, batch=900)
    table = importlib.import_module("pyarrow.parquet").ParquetFile(tmp_path / "run.parquet")
    assert [table.metadata.row_group(i).num_rows for i in range(3)] == [900, 900, 200]
    frame = table.read().to_pandas()
    assert frame["step"].tolist() == list(range(STEPS)) and set(frame["path"]) == {"scan[0]"}
    assert frame[["gradient_norm", "loss"]].to_dict("records") == recorded
