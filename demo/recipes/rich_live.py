"""A live table of every loop that runs, with rich."""

from __future__ import annotations

from fitting import fit, numbers
from rich.console import Console
from rich.live import Live
from rich.table import Table

import jaxtap as tap


class LiveTable:
    """Keeps the newest event of each loop and shows it, four times a second. Pass it as `on_step=`."""

    def __init__(self, console: Console | None = None) -> None:
        self.newest: dict[str, tap.TapEvent] = {}
        self.live = Live(get_renderable=self.table, console=console)

    def __call__(self, event: tap.TapEvent) -> None:
        self.newest[event.path] = event

    def table(self) -> Table:
        """What is shown now: a row for each loop."""
        events = list(self.newest.values())
        names = list(dict.fromkeys(name for event in events for name in event.value))
        table = Table("loop", "step", "of", *names)
        for event in events:
            values = (f"{float(event.value[name]):.4g}" if name in event.value else "" for name in names)
            table.add_row(event.path, str(event.step), str(event.total or "?"), *values)
        return table

    def __enter__(self) -> LiveTable:
        self.live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()


def main(console: Console | None = None, steps: int = 20_000) -> LiveTable:
    with LiveTable(console) as shown, tap.record(select=numbers, on_step=shown):
        fit(steps)
    return shown


if __name__ == "__main__":
    main()
