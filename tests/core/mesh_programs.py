"""Programs that run on eight devices, each with the events that a lens must see of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxtap as tap

SIZES, NAMES = (4, 2), ("x", "y")
X = np.arange(32, dtype=np.float32).reshape(8, 4) / 10


def mesh(kind: AxisType = AxisType.Auto) -> Mesh:
    return jax.make_mesh(SIZES, NAMES, axis_types=(kind, kind))


def put(value: Any, *spec: Any, kind: AxisType = AxisType.Auto) -> Any:
    return jax.device_put(value, NamedSharding(mesh(kind), P(*spec)))


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of a float32 array of shape (8, 4), sharded over both axes of the mesh.

    Attributes:
      run: the function.
      loops: address of each loop, with how many steps it makes on each device, or in all where it is seen once.
      devices: the devices that send, if shards are not asked for.
      shape: shape of the last leaf of an outermost loop's carry, if shards are not asked for.
      own: the same, if they are.
      lanes: how many lanes a whole crossing has; with shards, a device has a quarter of them.
    """

    run: Callable[[Any], Any]
    loops: dict[str, int]
    devices: tuple[int, ...] = (0,)
    shape: tuple[int, ...] = (8, 4)
    own: tuple[int, ...] = (2, 2)
    lanes: int = 1


def step(c: Any, t: Any) -> tuple[Any, Any]:
    new = jnp.sin(c) * 0.9 + t
    return new - new.mean() * 0.5, new[0]


def scan(x: Any) -> Any:
    return lax.scan(step, x, jnp.arange(5.0))


def large(x: Any) -> Any:
    """Too large to be done twice."""

    def body(c: Any, t: Any) -> tuple[Any, Any]:
        return jnp.sin(c) * 0.9 + c.mean() + t, None

    return lax.scan(body, jnp.broadcast_to(x, (32, 8, 4)), jnp.arange(5.0))[0]


def nested(x: Any) -> Any:
    def outer(c: Any, t: Any) -> tuple[Any, Any]:
        c = lax.fori_loop(0, 2, lambda i, c: jnp.cos(c) * 0.5 + i, c)
        return c + t, c.sum()

    return lax.scan(outer, x, jnp.arange(3.0))


def while_(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, jnp.sin(s[1]) + s[1].mean()), (0, x))[1]


def grad(x: Any) -> Any:
    return jax.grad(lambda x: scan(x)[0].sum())(x)


def lanes(x: Any) -> Any:
    """Eight lanes, of which each runs until its own end."""

    def lane(v: Any, n: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] + 1, lax.fori_loop(0, 2, lambda j, c: jnp.sin(c) + j, s[1])

        return lax.while_loop(lambda s: s[0] < n, body, (0, v))[1]

    return jax.vmap(lane)(x, LANE_STEPS)


LANE_STEPS = np.array([1, 2, 3, 0, 1, 2, 3, 4], np.int32)


def chains(x: Any) -> Any:
    def lane(v: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c) + t, c.sum()), v, jnp.arange(3.0))

    return jax.vmap(lane)(x)


def marked(x: Any) -> Any:
    def body(c: Any, t: Any) -> tuple[Any, None]:
        return jnp.sin(c) + tap.mark("product", c * t) * 0.1, None

    return lax.scan(body, tap.mark("start", x * 2.0), jnp.arange(3.0))[0]


BOTH, FIRST = P("x", "y"), P("x")

# --- Inside of shard_map -------------------------------------------------------------------------------------


def manual(run: Any, outs: Any = BOTH, check_vma: bool = True) -> Callable[[Any], Any]:
    return lambda x: jax.shard_map(run, mesh=mesh(), in_specs=BOTH, out_specs=outs, check_vma=check_vma)(x)


def partly(run: Any, outs: Any = FIRST) -> Callable[[Any], Any]:
    return lambda x: jax.shard_map(run, mesh=mesh(), in_specs=FIRST, out_specs=outs, axis_names={"x"})(x)


def summing(x: Any) -> Any:
    def body(c: Any, t: Any) -> tuple[Any, Any]:
        new = jnp.sin(c) * 0.9 + t
        return new - lax.psum(new.sum(), "x") * 1e-3, new * 2.0

    return lax.scan(body, x, jnp.arange(5.0))


def gathering(x: Any) -> Any:
    def body(c: Any, t: Any) -> tuple[Any, None]:
        row = lax.all_gather(c[0, 0], ("x", "y"))
        return lax.ppermute(jnp.sin(c) + t, "x", [(i, (i + 1) % 4) for i in range(4)]) + row.mean(), None

    return lax.scan(body, x, jnp.arange(4.0))[0]


def own_pace(x: Any) -> Any:
    """A while whose trip count is another on each device."""

    def body(s: Any) -> Any:
        i, c = s
        return i + 1, lax.scan(lambda c, t: (jnp.sin(c) + t, c.sum()), c, jnp.arange(2.0))[0]

    return lax.while_loop(lambda s: s[0] <= lax.axis_index("x"), body, (0, x))[1]


def branching(x: Any) -> Any:
    """A loop in a branch that only odd devices take."""

    def body(c: Any, t: Any) -> tuple[Any, None]:
        loop = lambda c: lax.fori_loop(0, 2, lambda i, c: c * 0.5 + i, c)  # noqa: E731
        return lax.cond(lax.axis_index("y") > 0, loop, lambda c: c + 1.0, c), None

    return lax.scan(body, x, jnp.arange(4.0))[0]


def gradient(x: Any) -> Any:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c) * t, c), x, jnp.arange(1.0, 4.0))[0]

    return jax.grad(lambda x: manual(run)(x).sum())(x)


def lanes_in_map(x: Any) -> Any:
    def lane(v: Any) -> Any:
        going_on = lambda s: s[0] < 2 + (v[0] > 1.0).astype(jnp.int32)  # noqa: E731
        return lax.while_loop(going_on, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, v))[1]

    return jax.vmap(lane)(x)


ALL = tuple(range(8))
OUTS = (P("x", "y"), P(None, "x", "y"))

PROGRAMS: dict[str, Program] = {
    "scan": Program(scan, {"scan[0]": 5}),
    "large": Program(large, {"scan[0]": 5}, shape=(32, 8, 4), own=(32, 2, 2)),
    "nested": Program(nested, {"scan[0]": 3, "scan[0]/scan[0]": 6}),
    "while": Program(while_, {"while[0]": 4}),
    "grad": Program(grad, {"scan[0]": 5}),
    "lanes": Program(lanes, {"while[0]": 16, "while[0]/scan[0]": 32}, shape=(4,), own=(2,), lanes=8),
    "chains": Program(chains, {"scan[0]": 24}, shape=(4,), own=(2,), lanes=8),
    "marked": Program(marked, {"scan[0]": 3}),
    "manual": Program(manual(summing, OUTS), {"scan[0]": 5}, ALL, (2, 2)),
    "manual, unchecked": Program(manual(summing, OUTS, False), {"scan[0]": 5}, ALL, (2, 2)),
    "manual, gathering": Program(manual(gathering), {"scan[0]": 4}, ALL, (2, 2)),
    "manual, nested": Program(manual(lambda x: nested(x)[0]), {"scan[0]": 3, "scan[0]/scan[0]": 6}, ALL, (2, 2)),
    "manual, marked": Program(manual(marked), {"scan[0]": 3}, ALL, (2, 2)),
    "manual, gradient": Program(gradient, {"scan[0]": 3}, ALL, (2, 2)),
    "partly manual": Program(partly(summing, (P("x"), P(None, "x"))), {"scan[0]": 5}, ALL[::2], (2, 4)),
}
