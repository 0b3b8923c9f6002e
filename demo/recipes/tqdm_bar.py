"""A progress bar over code that has none, with tqdm."""

from __future__ import annotations

from typing import Any

from fitting import fit
from tqdm.auto import tqdm

import jaxtap as tap


class Bar:
    """Moves a bar with each event of a loop, and shows the value that was selected. Pass it as `on_step=`.

    A loop without a known trip count, such as a `while_loop`, gets a bar without an end. Each loop that begins resets
    it: select the loop with `where=` or `max_depth=0`.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.bar, self.run = name, tqdm(**options), None

    def __call__(self, event: tap.TapEvent) -> None:
        if self.run != (event.path, event.call):
            self.run = (event.path, event.call)
            self.bar.reset(total=event.total)
        self.bar.set_postfix({self.name: f"{float(event.value):.4g}"}, refresh=False)
        self.bar.update(event.step + 1 - self.bar.n)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()


def main(steps: int = 20_000, **options: Any) -> Bar:
    with Bar("loss", **options) as bar, tap.record(select="loss", on_step=bar):
        fit(steps)
    return bar


if __name__ == "__main__":
    main()
