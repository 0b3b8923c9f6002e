"""A progress bar over any context."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from jaxtap.internal import Row
from jaxtap_blackjax._seen import Seen


class _Bar:
    """Moves a bar as rows come: one step is done when the first chain has done it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._series: tuple[Any, ...] | None = None
        self._divergences = 0

    def __call__(self, row: Row) -> None:
        if self._series is None or (self._series[0], *self._series[2:]) != (row.series[0], *row.series[2:]):
            self._series = row.series
            self._bar.reset(total=row.total)
        self._divergences += bool(row["is_divergent"]) if "is_divergent" in row.values else 0
        if row.series == self._series:
            self._bar.set_postfix(self._said(row), refresh=False)
            self._bar.update(1)

    def _said(self, row: Row) -> dict[str, str]:
        names = ("step_size", "tree_depth", "tempering_parameter", "elbo", "remaining")
        said = {name: f"{row.values[name]:.3g}" for name in names if name in row.values}
        return said | ({"divergences": str(self._divergences)} if "is_divergent" in row.values else {})


@contextlib.contextmanager
def progress(watch: Seen, **options: Any) -> Generator[Seen]:
    """Enter a context with a progress bar over it.

    The bar moves with each step of the first chain; the step size, depth and the like of that step, and the number
    of divergences in all chains, stand behind it. It begins anew with each loop.

    Args:
      watch: what `watch_warmup()` or another context of this package gives, not yet entered.
      **options: passed to `tqdm.auto.tqdm`.

    Returns:
      A context; bound to it is `watch`.

    Raises:
      ImportError: without tqdm.

    >>> import sys
    >>> import blackjax, jax, jax.numpy as jnp
    >>> hmc = blackjax.hmc(lambda x: -x @ x / 2, 0.5, jnp.ones(2), 3)
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> with progress(watch_sampling(), file=sys.stdout) as seen:  # doctest: +NORMALIZE_WHITESPACE
    ...     out = jax.lax.scan(lambda s, k: (hmc.step(k, s)[0], None), hmc.init(jnp.ones(2)), keys)
    sampling: ...5/5 [...
    """
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("progress() needs tqdm: pip install 'jaxtap-blackjax[progress]'.") from error
    shown: dict[str, Any] = {"desc": watch.name.removeprefix("watch_"), "unit": "step"} | options
    with tqdm(**shown) as bar, watch.telling(_Bar(bar)), watch:
        yield watch
