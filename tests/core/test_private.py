"""The two places where jaxtap leans on names inside JAX: these tests fail when those move."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import mlir

import jaxtap as tap
from jaxtap import _pruned
from jaxtap._jaxprs import scan_p, while_p


def test_the_present_lowering_rules_are_found() -> None:
    for primitive in (scan_p, while_p):
        assert callable(mlir._lowerings[primitive].rule)
        assert "realis" in mlir._lowerings[primitive].rule.__qualname__


class State(NamedTuple):
    position: Any
    fixed: Any
    step: Any


def test_leaves_are_whole_and_in_order() -> None:
    """Unchanged leaves and forwarded outputs are taken out before a loop is bound; a user still counts them."""

    def body(s: State, x: Any) -> Any:
        return State(s.position * s.fixed + x, s.fixed, s.step + 1), (x, s.position, {"k": s.fixed})

    start = State(jnp.ones(3), jnp.full(3, 0.5), jnp.int32(0))
    scan = tap.loops(lambda: lax.scan(body, start, jnp.arange(4.0)))[0]
    assert [leaf.name for leaf in scan.carry] == ["s.position", "s.fixed", "s.step"]
    assert [leaf.name for leaf in scan.outputs] == ["ys[0]", "ys[1]", "ys[2]['k']"]
    loop = tap.loops(lambda: lax.while_loop(lambda s: s.step < 3, lambda s: body(s, 1.0)[0], start))[0]
    assert [leaf.name for leaf in loop.carry] == ["s.position", "s.fixed", "s.step"]


def test_frames_are_read_only_where_they_are_known() -> None:
    assert _pruned.pruned(0) is None


def test_a_frame_that_has_changed_is_no_error(monkeypatch: Any) -> None:
    monkeypatch.setattr(_pruned, "_MODULE", "elsewhere")
    with tap.record() as rec:
        lax.scan(lambda s, x: ((s[0] + x, s[1]), None), (0.0, 1.0), jnp.arange(3.0))
    assert len(rec.events) == 3 and len(rec.events[0].value) == 1
    assert jax.numpy is jnp
