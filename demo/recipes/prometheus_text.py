"""The newest numbers of every loop for Prometheus, with prometheus_client.

The file is in Prometheus's text format, for the textfile collector of node_exporter. To be scraped instead, hand the
registry to `prometheus_client.start_http_server(8000, registry=metrics.registry)`.
"""

from __future__ import annotations

import time
from pathlib import Path

from fitting import fit, numbers
from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile

import jaxtap as tap

FILE = Path(__file__).parents[1] / "output" / "jaxtap.prom"
SECONDS = 1.0


class Metrics:
    """Keeps a gauge for each number, and writes all of them once a second. Pass it as `on_step=`."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, 0.0
        path.parent.mkdir(parents=True, exist_ok=True)
        self.registry = CollectorRegistry()
        self.steps = Counter("jaxtap_steps", "Steps that a loop has made", ["loop"], registry=self.registry)
        self.value = Gauge("jaxtap_value", "A number of a loop's state", ["loop", "name"], registry=self.registry)

    def __call__(self, event: tap.TapEvent) -> None:
        self.steps.labels(event.path).inc()
        for name, value in event.value.items():
            self.value.labels(event.path, name).set(float(value))
        if time.monotonic() - self.written > SECONDS:
            self.write()

    def write(self) -> None:
        """Replace the file, whole at any time."""
        write_to_textfile(str(self.path), self.registry)
        self.written = time.monotonic()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *error: object) -> None:
        self.write()


def main(path: Path = FILE, steps: int = 20_000) -> None:
    with Metrics(path) as metrics, tap.record(select=numbers, on_step=metrics):
        fit(steps)


if __name__ == "__main__":
    main()
    print(FILE.read_text(encoding="utf-8"))
