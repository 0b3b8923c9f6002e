"""The rules of tripwires, one value after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxtap.internal import NonFinite, Often, OnColumn, Outside, Row, Spike, Unchanged, chosen

NAN, INF = float("nan"), float("inf")

RULES = {
    "below": (Outside(low=1.0), [2.0, 1.0, 0.5, NAN, INF, -INF], [2, 5]),
    "above": (Outside(high=1.0), [2.0, 1.0, NAN, INF], [0, 3]),
    "outside, or NaN": (Outside(0.0, 1.0, nan=True), [2.0, 0.5, NAN, -1.0], [0, 2, 3]),
    "not finite": (NonFinite(), [1.0, NAN, INF, -INF, 0.0], [1, 2, 3]),
    "spike": (Spike(3.0, window=4, at_least=2), [1.0, 9.0, 1.0, 4.0, 1.0, 1.0, 40.0, INF, NAN, 13.0], [3, 6, 7, 9]),
    "often": (Often(Outside(high=1.0), window=4, share=0.75), [2.0, 2.0, 0.0, 2.0, 2.0, 0.0, 0.0], [3, 4]),
    "in a row": (Often(Outside(high=1.0), window=3), [2.0, 2.0, 2.0, 2.0, 0.0, 2.0], [2, 3]),
    "unchanged": (Unchanged(3), [1.0, 1.0, 1.0, 1.5, 1.5, 1.5, NAN, NAN, NAN], [2, 5]),
    "nearly": (Unchanged(2, relative=0.1), [1.0, 1.05, 2.0, -2.0], [1]),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    rule, values, bad = RULES[name]
    judge = rule.fresh()
    assert [i for i, value in enumerate(values) if judge(value)] == bad


@pytest.mark.parametrize("name", ["below", "above", "outside, or NaN", "not finite"])
def test_rules_of_one_value_are_the_same_on_the_device(name: str) -> None:
    rule, values, bad = RULES[name]
    on_device = jax.jit(rule.at_once)(jnp.array(values))
    assert [i for i, each in enumerate(on_device) if each] == bad


def row(step: int, **values: Any) -> Row:
    return Row("scan[0]", step, 10, (), (), 0, 0.0, values)


def test_each_column_and_each_series_is_looked_at_by_itself_and_told_once() -> None:
    look = OnColumn("large", "norm/*", Outside(high=1.0), "{layer} has {value:.1f} (> {rule.high})").start()
    rows = [
        row(0, **{"norm/a": 2.0, "norm/b": 0.0, "other": 5.0}),
        row(1, **{"norm/a": 2.0, "norm/b": 3.0}),
        row(2, **{"norm/a": 0.0, "norm/b": 3.0}),
        row(3, **{"norm/a": 2.0}),
    ]
    trips = [trip for each in rows for trip in look(each)]
    assert [(t.row.step, t.layer, t.message) for t in trips] == [
        (0, "a", "a has 2.0 (> 1.0)"),
        (1, "b", "b has 3.0 (> 1.0)"),
        (3, "a", "a has 2.0 (> 1.0)"),
    ]


def test_where_and_at_once() -> None:
    wire = OnColumn("late", "x", Outside(high=1.0), "{value}", where=lambda row: row.step > 1)
    look = wire.start()
    assert [t.row.step for i in range(4) for t in look(row(i, x=2.0))] == [2] and wire.at_once({"x": 2.0}) is None
    every = OnColumn("any", "x*", Outside(high=1.0), "{value}")
    assert every.at_once({"x1": jnp.float32(0.0), "x2": jnp.float32(3.0), "y": jnp.float32(9.0)})
    assert every.at_once({"y": 1.0}) is None


def test_which_are_chosen() -> None:
    one = OnColumn("one", "x", NonFinite(), "")
    assert chosen(True, lambda: (one,)) == (one,) and chosen(False, lambda: (one,)) == ()
    assert chosen([one], tuple) == (one,) == chosen(one, tuple)
    with pytest.raises(TypeError, match=r"True, False or a list of tripwires; got 'one'\. The defaults are: one"):
        chosen(["one"], lambda: (one,))
