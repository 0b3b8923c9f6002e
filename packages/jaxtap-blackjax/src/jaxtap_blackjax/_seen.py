"""What a context has seen, and how to read it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from jaxtap.internal import Choices, Plan, Row, Watch
from jaxtap_blackjax._summary import Summary, summary_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Seen(Watch):
    """A context on BlackJAX, with ways to read what it has seen.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> hmc = blackjax.hmc(lambda x: -x @ x / 2, 0.5, jnp.ones(2), 3)
    >>> with watch_sampling() as seen:
    ...     state, info = hmc.step(jax.random.key(0), hmc.init(jnp.ones(2)))
    >>> len(seen.rows), seen.trips, seen.rows[0]["num_integration_steps"]
    (1, [], 3)
    """

    def __init__(self, plan: Plan, choices: Choices) -> None:
        self._listeners: list[Callable[[Row], object]] = [] if choices.on_row is None else [choices.on_row]
        self.name = plan.name
        # Where no one listens, rows are made when they are asked for, not while the program runs.
        super().__init__(plan, dataclasses.replace(choices, on_row=self._tell) if self._listeners else choices)

    def _tell(self, row: Row) -> None:
        for listener in self._listeners:
            listener(row)

    @contextlib.contextmanager
    def telling(self, listener: Callable[[Row], object]) -> Generator[None]:
        """Call a function with each row, too, for the time of a block that is around the context."""
        before, self._choices = self._choices, dataclasses.replace(self._choices, on_row=self._tell)
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
            self._choices = before

    def summary(self) -> Summary:
        """What was seen, what tripped first and when, and how each chain stands at its end.

        Returns:
          A dictionary; printed, a table. `steps`, `chains`, `divergences`, `first_trip` and `trips` (each with
          `tripwire`, `path`, `step`, `lane`, `message`), and `per_chain`: a dictionary for each, by lane.
        """
        return summary_of(self.name, self.rows, self.trips, self.dropped)

    def plot(self, **options: Any) -> Figure:
        """Draw step size, acceptance against its target, tree depths, mass matrix and divergences, by chain.

        Args:
          **options: `target` (acceptance rate, 0.8), `window` (steps that the acceptance rate is averaged over, 25).

        Raises:
          ImportError: without matplotlib.
          ValueError: if nothing was seen.
        """
        from jaxtap_blackjax._plot import plot  # noqa: PLC0415 - matplotlib is an extra

        return plot(self, **options)

    def to_arviz(self) -> Any:
        """The rows as ArviZ's sample statistics, for its plots and diagnostics.

        A warmup's are in the group `warmup_sample_stats`, those of sampling in `sample_stats`, with dimensions `chain`
        and `draw` and in ArviZ's names: `diverging`, `tree_depth`, `step_size`, `step_size_bar`, `energy`, `lp`,
        `acceptance_rate`, `n_steps`.

        Raises:
          ImportError: without arviz.
          ValueError: if nothing was seen.
        """
        from jaxtap_blackjax._arviz import to_arviz  # noqa: PLC0415 - arviz is an extra

        return to_arviz(self.name, self.rows)
