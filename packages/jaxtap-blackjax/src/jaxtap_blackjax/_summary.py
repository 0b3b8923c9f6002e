"""A run in one dictionary, and as a readable table."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Sequence
from typing import Any

from jaxtap.internal import Row, Trip

# How a column becomes one number of a chain: its last value, its sum, its mean or its largest.
_READINGS = {
    "step_size": "last",
    "step_size_avg": "last",
    "acceptance_rate": "mean",
    "is_divergent": "sum",
    "tree_depth": "max",
    "num_integration_steps": "sum",
    "logdensity": "last",
    "mass_matrix_condition": "last",
    "trajectory_length": "last",
    "mclmc_L": "last",
    "tempering_parameter": "last",
    "ess": "last",
    "log_evidence": "last",
    "elbo": "last",
    "logz": "last",
}
_NAMED = {"is_divergent": "divergences", "tree_depth": "deepest tree"}


class Summary(dict[str, Any]):
    """What a context has seen. Printed, it is a table.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> hmc = blackjax.hmc(lambda x: -x @ x / 2, 0.5, jnp.ones(2), 3)
    >>> with watch_sampling() as seen:
    ...     state, info = hmc.step(jax.random.key(0), hmc.init(jnp.ones(2)))
    >>> summary = seen.summary()
    >>> summary["steps"], summary["chains"], summary["first_trip"]
    (1, 1, None)
    >>> print(str(summary).splitlines()[0])
    watch_sampling: 1 steps of 1 chain(s), 1 rows
    """

    def __str__(self) -> str:
        lines = [f"{self['watch']}: {self['steps']} steps of {self['chains']} chain(s), {self['rows']} rows"]
        if self["dropped"]:
            lines.append(f"  {self['dropped']} rows dropped to keep within capacity")
        lines += [_trip_line(trip) for trip in self["trips"][:5]] or ["  no tripwire fired"]
        if len(self["trips"]) > 5:
            lines.append(f"  ... and {len(self['trips']) - 5} more")
        return "\n".join([*lines, *_table(self["per_chain"])])

    __repr__ = __str__


def summary_of(name: str, rows: Sequence[Row], trips: Sequence[Trip], dropped: int) -> Summary:
    """A summary of rows and of the tripwires that have fired."""
    by_lane: dict[tuple[int, ...], list[Row]] = collections.defaultdict(list)
    for row in rows:
        by_lane[row.lane].append(row)
    told = [_told(trip) for trip in trips]
    return Summary(
        watch=name,
        rows=len(rows),
        steps=max((len(own) for own in by_lane.values()), default=0),
        chains=len(by_lane),
        divergences=sum(bool(row["is_divergent"]) for row in rows if "is_divergent" in row.values),
        dropped=dropped,
        first_trip=told[0] if told else None,
        trips=told,
        per_chain=[{"lane": lane} | _read(own) for lane, own in sorted(by_lane.items())],
    )


def _told(trip: Trip) -> dict[str, Any]:
    row = trip.row
    where = {"path": row.path, "step": row.step, "lane": row.lane, "call": row.call}
    return {"tripwire": trip.tripwire, **where, "message": trip.message}


def _read(rows: Sequence[Row]) -> dict[str, Any]:
    """One chain in a few numbers."""
    read: dict[str, Any] = {"steps": len(rows)}
    for column, how in _READINGS.items():
        # A mean is over the steps that are sent whatever happens in them.
        values = [row.values[column] for row in rows if column in row.values and not (how == "mean" and row.between)]
        if values:
            read[_NAMED.get(column, column)] = _reading(values, how)
    stages = collections.Counter(row.values["stage"] for row in rows if "stage" in row.values)
    return read | ({"stages": dict(stages)} if stages else {})


def _reading(values: Sequence[Any], how: str) -> Any:
    if how == "last":
        return values[-1]
    if how == "sum":
        return sum(map(int, values))
    return max(values) if how == "max" else statistics.fmean(v for v in map(float, values))


def _trip_line(trip: dict[str, Any]) -> str:
    lane = f" lane {trip['lane']}" if trip["lane"] else ""
    return f"  {trip['tripwire']}: {trip['path']} step {trip['step']}{lane}: {trip['message']}"


def _table(chains: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each chain under a line of headings, columns aligned."""
    heads = list(dict.fromkeys(k for chain in chains for k in chain if k != "stages"))
    cells = [heads, *([_cell(chain.get(head)) for head in heads] for chain in chains)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return ["  " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells] if heads else []


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, tuple):
        return "-" if not value else ",".join(map(str, value))
    return "" if value is None else str(value)
