"""Named selectors: by type and field where types are known, by field elsewhere, never by position."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import jaxtap as tap
from jaxtap.internal import Selector


class Dual(NamedTuple):
    log_step_size: Any
    step: Any


class Adaptation(NamedTuple):
    dual: Dual
    step_size: Any


class Moments(NamedTuple):
    count: Any
    mu: Any


class Schedule(NamedTuple):
    count: Any


STATE = (
    {"mu": jnp.ones(3), "w": jnp.zeros(2)},
    Moments(jnp.int32(4), {"mu": jnp.full(3, 2.0), "w": jnp.full(2, 3.0)}),
    Schedule(jnp.int32(5)),
    Adaptation(Dual(jnp.float32(-1.0), jnp.int32(7)), jnp.float32(0.3)),
    {"hyper": {"rate": jnp.float32(0.01)}},
)

step_size = Selector("step_size", (("Adaptation", "step_size"), ("Older", "epsilon"), ("", "step_size")))
mu_sum = Selector("mu_sum", (("Moments", "mu"), ("", "mu")), lambda leaves: sum(leaf.sum() for leaf in leaves))
count = Selector("count", (("Moments", "count"),))
any_count = Selector("any_count", (("", "count"),))
dual_step = Selector("dual_step", (("Adaptation", "dual.step"), ("", "dual.step")))
rate = Selector("rate", (("Hyper", "hyper.rate"), ("", "hyper.rate")))
missing = Selector("missing", (("Adaptation", "elsewhere"), ("", "nowhere")))

FOUND = {step_size: 0.3, mu_sum: 12.0, count: 4, dual_step: 7, rate: 0.01}


def body(state: Any, _: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, state), None


@pytest.mark.parametrize("selector", FOUND, ids=repr)
def test_called_with_a_state(selector: Selector) -> None:
    assert float(selector(STATE)) == pytest.approx(FOUND[selector])


@pytest.mark.parametrize(
    ("selector", "nested"), [(s, n) for s in FOUND for n in (False, True) if s is not count or not n], ids=repr
)
def test_in_a_tap(selector: Selector, nested: bool) -> None:
    """Types are known of an outermost loop; of an inner one, where `count` would be one of two, the names alone."""

    def inner(state: Any) -> Any:
        return jax.lax.scan(body, state, None, length=2)[0]

    def outer(state: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return inner(jax.tree.map(lambda x: x + c.astype(x.dtype), state))[3].step_size * 0.0, None

        return jax.lax.scan(step, jnp.float32(0), None, length=1)[0]

    with tap.record(select=selector) as rec:
        (outer if nested else inner)(STATE)
    expected = FOUND[selector] + (5 if selector is mu_sum else 1)
    assert {e.path for e in rec.events} == {"scan[0]/scan[0]" if nested else "scan[0]"}
    assert float(rec.events[0].value) == pytest.approx(expected) and len(rec.events) == 2


def test_what_is_not_there_says_what_is() -> None:
    lacks = (
        "there is no missing here, which is Adaptation.elsewhere or nowhere; there is: mu, w, Moments.count, Moments.mu"
    )
    with pytest.raises(tap.SelectError, match=re.escape(lacks)):
        missing(STATE)
    with pytest.warns(tap.JaxtapWarning, match="no loop has a leaf named 'missing'"), tap.record(select=missing) as rec:
        jax.lax.scan(body, STATE, None, length=2)
    assert not rec.events


def test_what_is_ambiguous_names_the_candidates() -> None:
    text = "any_count may be any of 1.count, 2.count; write more of the one that you mean, as in select='1.count'"
    with pytest.raises(tap.SelectError, match=re.escape(text)):
        any_count(STATE)
    with pytest.raises(tap.SelectError, match="any_count may be any of"), tap.record(select=any_count):
        jax.lax.scan(body, STATE, None, length=2)
    twice = (STATE[3], STATE[3])
    with pytest.raises(tap.SelectError, match=re.escape("step_size may be any of [0].step_size, [1].step_size")):
        step_size(twice)
