"""Programs by transforms by taps: the result is bit for bit the same, and each step is announced exactly once."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core.programs import PROGRAMS, Program

import jaxtap as tap
from jaxtap._events import KINDS

V = jnp.array([0.3, -0.2, 0.7, 1.1])
LANES = jnp.stack([V, V * 1.1, V + 0.01])


def loss(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sum of all real results of `f`."""

    def total(x: Any) -> Any:
        leaves = [leaf for leaf in jax.tree.leaves(f(x)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return sum(jnp.sum(leaf.astype(jnp.float32)) for leaf in leaves)

    return total


@dataclasses.dataclass(frozen=True)
class Transform:
    """A way to run a program.

    Attributes:
      apply: makes the function to call.
      argument: what to call it with.
      needs: what the program must allow, `"smooth"` or `"forward"` or both.
      inside: address of what the transform wraps around the program, if it makes a boundary.
    """

    apply: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
    argument: Any = None
    needs: tuple[str, ...] = ()
    inside: str = ""

    @property
    def backward(self) -> bool:
        """Whether it runs a gradient pass."""
        return "smooth" in self.needs


def grad(f: Any) -> Any:
    return jax.grad(loss(f))


TRANSFORMS = {
    "eager": Transform(lambda f: f),
    "jit": Transform(jax.jit),
    "vmap": Transform(jax.vmap, LANES),
    "jit(vmap)": Transform(lambda f: jax.jit(jax.vmap(f)), LANES),
    "vmap(vmap)": Transform(lambda f: jax.vmap(jax.vmap(f)), LANES[None]),
    "jvp": Transform(lambda f: lambda x: jax.jvp(f, (x,), (x,)), needs=("forward",)),
    "linearize": Transform(lambda f: lambda x: jax.linearize(f, x)[1](x), needs=("forward",)),
    "grad": Transform(grad, needs=("smooth",)),
    "jit(grad)": Transform(lambda f: jax.jit(grad(f)), needs=("smooth",)),
    "vmap(grad)": Transform(lambda f: jax.vmap(grad(f)), LANES, needs=("smooth",)),
    "hessian": Transform(lambda f: jax.hessian(loss(f)), needs=("smooth", "forward")),
    "grad(checkpoint)": Transform(lambda f: grad(jax.checkpoint(f)), needs=("smooth",), inside="remat[0]/"),
    "donated": Transform(lambda f: lambda x: jax.jit(f, donate_argnums=0)(x + 0.0)),
}

OUTPUTS = {"select_ys": lambda leaves: tuple(leaves)}
EQUATIONS = {"taps": [tap.on(["sin", "cos"], select=lambda outs: outs[0].sum())]}
TAPS: dict[str, dict[str, Any]] = {
    "carry": {},
    "carry and ys": OUTPUTS,
    "equations": {"ops": (), "marks": (), **EQUATIONS},
    "all of them": OUTPUTS | EQUATIONS,
    "backward": {
        "select": lambda leaves: (),
        "marks": (),
        "select_backward": lambda leaves: [jnp.sum(x) for x in leaves],
    },
    "reduced, sampled": {"select": lambda leaves: [jnp.sum(jnp.isnan(x)) for x in floats(leaves)], "sample_every": 2},
}


def floats(leaves: Any) -> list[Any]:
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def bits(result: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result)]


def counted(rec: tap.FlightRecorder, kind: str) -> dict[str, int]:
    return dict(collections.Counter(event.path for event in rec.events if event.kind == kind))


def steps(rec: tap.FlightRecorder, kind: str) -> dict[str, int]:
    """As `counted`, but all lanes of a step as one."""
    seen = {(e.path, e.call, e.outer, e.step) for e in rec.events if e.kind == kind}
    return dict(collections.Counter(path for path, *_ in seen))


def cases() -> list[Any]:
    found = []
    for name, program in PROGRAMS.items():
        for way, transform in TRANSFORMS.items():
            if all(getattr(program, need) for need in transform.needs):
                found.append(pytest.param(program, transform, id=f"{name}-{way}"))
    return found


def expected(program: Program, lens: str) -> dict[str, dict[str, int]]:
    """What one call of a program sends, by kind and address."""
    if lens == "equations":
        return {"primitive": program.waves}
    if lens == "backward":
        cotangents = program.loops if program.cotangents is None else program.cotangents
        return {"carry": program.loops, "backward": cotangents}
    if lens in ("carry and ys", "all of them"):
        waves = program.waves if lens == "all of them" else {}
        return {"carry": program.loops, "output": program.outputs, "mark": program.marks, "primitive": waves}
    return {"carry": program.loops, "mark": program.marks}


@pytest.mark.parametrize(("program", "transform"), cases())
@pytest.mark.filterwarnings("ignore:jaxtap.*no:UserWarning", "ignore:Some donated buffers were not usable")
def test_same_bits_and_every_step(program: Program, transform: Transform) -> None:
    argument = V if transform.argument is None else transform.argument
    lanes = argument.size // V.size
    f = transform.apply(program.run)
    bare = bits(f(argument))
    for name, lens in TAPS.items():
        if name == "backward" and not transform.backward:
            continue
        # Each by itself is the same work for every transform: two of them will do.
        if name not in ("all of them", "backward") and transform not in (TRANSFORMS["jit"], TRANSFORMS["vmap"]):
            continue
        with tap.record(**lens) as rec:
            result = f(argument)
        assert bits(result) == bare, name
        assert rec.report().expected == rec.report().delivered == len(rec.events), name
        if name == "reduced, sampled":
            continue
        found = {kind: counted(rec, kind) for kind in KINDS}
        if name == "backward":
            # What this lens selects of a carry has no lanes, nor has a cotangent that is the same for all.
            found = {kind: {path: n * lanes for path, n in steps(rec, kind).items()} for kind in KINDS}
        want = {kind: {path: n * lanes for path, n in paths.items()} for kind, paths in expected(program, name).items()}
        if transform.inside:
            for kind in KINDS:
                assert sum(found[kind].values()) == sum(want.get(kind, {}).values()), (name, kind)
                assert all(path.startswith(transform.inside) for path in found[kind]), (name, kind)
        else:
            assert found == {kind: want.get(kind, {}) for kind in KINDS}, name
    assert bits(f(argument)) == bare


@pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if p.outputs])
def test_outputs_are_the_returned_ones(name: str) -> None:
    """What is seen of a scan's outputs is what the scan returns."""
    if len(PROGRAMS[name].loops) > 1 or name in ("associative", "keyed", "many_types", "same_line", "in_nested_jit"):
        pytest.skip("the program does not return the outputs of this scan")
    if name in ("in_checkpoint", "in_cond", "dropped_outputs"):
        pytest.skip("the program drops them")
    with tap.record(select_ys=lambda leaves: leaves.tree()) as rec:
        result = PROGRAMS[name].run(V)
    ys = result if name == "mapped" else result[1]
    outputs = [event for event in rec.events if event.kind == "output"]
    assert outputs
    for event in outputs:
        step = event.total - 1 - event.step if name == "reverse" else event.step
        want = jax.tree.map(lambda y, i=step: np.asarray(y)[i], ys)
        assert jax.tree.structure(event.value) == jax.tree.structure(want)
        assert bits(event.value) == bits(want)
