"""Programs of other libraries, as their users write them, and what each library itself says of its loops."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import blackjax
import blackjax.util
import diffrax
import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import optimistix as optx
from flax import nnx
from numpyro.infer import MCMC, NUTS

# Events of each loop, by shape of its address, in the order of the program. None: some, the library does not say.
Counts = Mapping[str, Sequence[int | None]]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that knows nothing of jaxtap.

    Attributes:
      name: what it is called in the table.
      make: builds it once; returns a function without arguments that runs it and returns a pytree of arrays.
      counts: from a result, how many events its loops send, by what the library itself has counted.
      lens: parameters of a narrow lens, which asks for little.
      told: from a result, what this lens should have seen of it.
      read: the same from the values that it has seen, in order.
      lanes: from a result, events of each chain, for loops under `vmap`.
    """

    name: str
    make: Callable[[], Callable[[], Any]]
    counts: Callable[[Any], Counts]
    lens: Mapping[str, Any]
    told: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] = lambda values: values
    lanes: Callable[[Any], Mapping[str, Any]] | None = None


def shape_of(path: str) -> str:
    """An address without its numbers, which depend on what else a library's release does between its loops."""
    return re.sub(r"\[\d+\]", "", path)


def place_of(path: str) -> list[int]:
    """The numbers of an address, by which addresses are in the order of the program."""
    return [int(number) for number in re.findall(r"\[(\d+)\]", path)]


def nothing(leaves: Any) -> tuple[()]:
    """A selector that sends no value."""
    return ()


# --- diffrax: Robertson's stiff chemical kinetics ------------------------------------------------------------

RATES = jnp.array([0.04, 3e7, 1e4])
# An explicit first stage, and the last one serves as the first of the next step.
STAGES = 6


class CountingChord(diffrax.VeryChord):
    """The root finder of diffrax's implicit solvers, counting its iterations."""

    tally: collections.Counter[str] = eqx.field(static=True, kw_only=True)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """One Newton iteration."""
        jax.debug.callback(lambda: self.tally.update(["iterations"]))
        return super().step(*args, **kwargs)


def robertson(t: Any, y: Any, rates: Any) -> Any:
    """Three species whose rates span nine orders of magnitude (Robertson 1966)."""
    slow, fast, back = rates
    first, third = -slow * y[0] + back * y[1] * y[2], fast * y[1] ** 2
    return jnp.stack([first, -first - third, third])


def solve_robertson(rates: Any, root_finder: Any = None, adjoint: Any = None) -> diffrax.Solution:
    """Solve it from 0 to 100. A small first step is accepted at once."""
    root_finder = root_finder or diffrax.with_stepsize_controller_tols(diffrax.VeryChord)()
    return diffrax.diffeqsolve(
        diffrax.ODETerm(robertson),
        diffrax.Kvaerno5(root_finder=root_finder),
        t0=0.0,
        t1=100.0,
        dt0=1e-5,
        y0=jnp.array([1.0, 0.0, 0.0]),
        args=rates,
        saveat=diffrax.SaveAt(steps=True),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7),
        max_steps=512,
        adjoint=adjoint or diffrax.RecursiveCheckpointAdjoint(),
    )


def newton_iterations() -> int:
    """How many Newton iterations the solution takes, counted by its root finder."""
    tally = collections.Counter()
    solve_robertson(RATES, diffrax.with_stepsize_controller_tols(CountingChord)(tally=tally))
    jax.effects_barrier()
    return tally["iterations"]


def stiff() -> Callable[[], Any]:
    """Kvaerno's fifth order method with an adaptive step."""

    def run() -> Any:
        solution = solve_robertson(RATES)
        return solution.ts, solution.ys, solution.stats

    return run


def stiff_counts(result: Any) -> Counts:
    """By diffrax's statistics, the method's tableau and the root finder."""
    steps = int(result[2]["num_steps"])
    return {
        "while": [steps],
        "while/custom_vjp/while": [STAGES * steps + 1],
        "while/custom_vjp/while/jit/custom_jvp/while": [newton_iterations()],
    }


def accepted_times(result: Any) -> np.ndarray:
    """The end of each accepted step."""
    return np.asarray(result[0])[: int(result[2]["num_accepted_steps"])]


def new_times(values: np.ndarray) -> np.ndarray:
    """The same from the time after each step, where a rejected one leaves it as it was."""
    return values[np.flatnonzero(np.diff(values, prepend=np.float32(0.0)))]


def stiff_gradient() -> Callable[[], Any]:
    """A gradient through the solution, by the checkpointed loop."""

    def loss(rates: Any) -> Any:
        solution = solve_robertson(rates)
        last = solution.stats["num_accepted_steps"] - 1
        return solution.ys[last] @ jnp.array([1.0, 1e3, 2.0]), solution.stats

    gradient = jax.jit(jax.grad(loss, has_aux=True))
    return lambda: gradient(RATES)


def stiff_gradient_counts(result: Any) -> Counts:
    """The forward pass as above; then one loop walks the steps back, running from checkpoint to checkpoint again."""
    steps = int(result[1]["num_steps"])
    stages, iterations = STAGES * steps + 1, newton_iterations()
    return {
        "while": [steps, None],
        "while/custom_vjp/while": [stages],
        "while/custom_vjp/while/jit/custom_jvp/while": [iterations],
        "while/while": [None],
        "while/while/jit/custom_jvp/while": [None],
        "while/cond/b1/while": [stages],
        "while/cond/b1/while/jit/custom_jvp/while": [iterations],
    }


# --- optimistix: rates of a reaction, fitted through a diffrax solve -----------------------------------------

TRUE_RATES, FIRST_GUESS = jnp.array([0.8, 0.3, 0.5]), jnp.array([0.5, 0.5, 0.4])
OBSERVED_AT = jnp.linspace(0.0, 10.0, 20)
LEVENBERG_MARQUARDT = optx.LevenbergMarquardt(rtol=1e-4, atol=1e-4)


def reaction(t: Any, y: Any, rates: Any) -> Any:
    """Two species that turn into one another, and one of them decays."""
    there, back, decay = rates
    exchange = there * y[0] - back * y[1]
    return jnp.stack([-exchange, exchange - decay * y[1]])


def solve_reaction(rates: Any) -> diffrax.Solution:
    """Solve it by an explicit method that a least-squares solver can push tangents through."""
    return diffrax.diffeqsolve(
        diffrax.ODETerm(reaction),
        diffrax.Tsit5(),
        t0=0.0,
        t1=10.0,
        dt0=0.1,
        y0=jnp.array([1.0, 0.0]),
        args=rates,
        saveat=diffrax.SaveAt(ts=OBSERVED_AT),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        adjoint=diffrax.ForwardMode(),
        max_steps=256,
    )


def residuals(rates: Any, observed: Any) -> Any:
    """What a guess leaves unexplained, and how many steps the solve took."""
    solution = solve_reaction(rates)
    return solution.ys - observed, solution.stats["num_steps"]


def observed() -> Any:
    """The data: the solution at the true rates."""
    return solve_reaction(TRUE_RATES).ys


def fit() -> Callable[[], Any]:
    """Levenberg-Marquardt through the solve."""
    data = observed()

    def run() -> Any:
        solution = optx.least_squares(residuals, LEVENBERG_MARQUARDT, FIRST_GUESS, args=data, has_aux=True)
        return solution.value, solution.aux, solution.stats["num_steps"]

    return run


def steps_of_each_solve(iterations: int) -> list[int]:
    """The solver's iterations made one at a time from Python, as optimistix allows: what each solve took."""
    solver, data = LEVENBERG_MARQUARDT, observed()
    shape, aux_shape = jax.eval_shape(residuals, FIRST_GUESS, data)
    static = {"fn": residuals, "args": data, "options": {}, "tags": frozenset()}
    state = solver.init(residuals, FIRST_GUESS, data, {}, shape, aux_shape, frozenset())
    step = eqx.filter_jit(eqx.Partial(solver.step, **static))
    guess, found = FIRST_GUESS, []
    for _ in range(iterations):
        # The residuals at the state's next guess.
        found.append(int(solve_reaction(state.y_eval).stats["num_steps"]))
        guess, state, _ = step(y=guess, state=state)
    return found


def fit_counts(result: Any) -> Counts:
    """By optimistix's and diffrax's statistics, and the tableau of Tsitouras' method."""
    iterations = int(result[2])
    steps = sum(steps_of_each_solve(iterations))
    return {
        "while": [iterations],
        "while/jit/while": [steps],
        "while/jit/while/while": [6 * steps + iterations, iterations * len(OBSERVED_AT)],
    }


# --- Eight schools (Rubin 1981), and a funnel ----------------------------------------------------------------

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)
WARMUP, DRAWS = 60, 40


def schools() -> None:
    """Eight schools, centred, as a NumPyro model."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        effect = numpyro.sample("effect", dist.Normal(mean, spread))
        numpyro.sample("observed", dist.Normal(effect, ERRORS), obs=EFFECTS)


def funnel(size: int) -> None:
    """Neal's funnel, as a NumPyro model."""
    neck = numpyro.sample("neck", dist.Normal(0.0, 3.0))
    numpyro.sample("mouth", dist.Normal(jnp.zeros(size), jnp.exp(neck / 2)))


def numpyro_nuts(*model: Any) -> Callable[[], Any]:
    """NumPyro's sampler without its own bar, keeping how many leapfrog steps each draw of warmup and sampling took."""
    fields = ("num_steps", "adapt_state.step_size")

    def run() -> Any:
        sampler = MCMC(NUTS(model[0]), num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)
        sampler.warmup(jax.random.key(1), *model[1:], extra_fields=fields, collect_warmup=True)
        warmup = sampler.get_samples(), sampler.get_extra_fields()
        sampler.run(jax.random.key(2), *model[1:], extra_fields=fields)
        return warmup, (sampler.get_samples(), sampler.get_extra_fields())

    return run


def numpyro_field(result: Any, name: str) -> np.ndarray:
    """A statistic of each draw of warmup and sampling."""
    return np.concatenate([np.asarray(extra[name]) for _, extra in result])


def numpyro_counts(result: Any) -> Counts:
    """By NumPyro's count of leapfrog steps."""
    return {
        "scan": [WARMUP + DRAWS],
        "scan/jit/while": [None],
        "scan/jit/while/while": [int(numpyro_field(result, "num_steps").sum())],
        "scan/jit/while/while/while": [None],
    }


def log_density(q: Any) -> Any:
    """Eight schools, centred, over (mean, log spread, eight effects), for BlackJAX."""
    mean, log_spread, effects = q[0], q[1], q[2:]
    prior = -0.5 * (mean / 5) ** 2 - jnp.log1p((jnp.exp(log_spread) / 5) ** 2) + log_spread
    schools = jnp.sum(-0.5 * ((effects - mean) * jnp.exp(-log_spread)) ** 2 - log_spread)
    return prior + schools + jnp.sum(-0.5 * ((EFFECTS - effects) / ERRORS) ** 2)


def adaptation() -> Callable[[], Any]:
    """BlackJAX's window adaptation, then draws."""
    warmup_key, sample_key = jax.random.split(jax.random.key(0))
    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)

    def run() -> Any:
        (state, parameters), warmup_info = warmup.run(warmup_key, jnp.zeros(10), WARMUP)
        final, (states, info) = blackjax.util.run_inference_algorithm(
            sample_key, blackjax.nuts(log_density, **parameters), num_steps=DRAWS, initial_state=state
        )
        return parameters, warmup_info, final, states, info

    return run


def adaptation_counts(result: Any) -> Counts:
    """By BlackJAX's information on each draw."""
    infos = (result[1].info, result[4])
    return {
        "scan": [WARMUP, DRAWS],
        "scan/while": [int(info.num_trajectory_expansions.sum()) for info in infos],
        "scan/while/while": [int(info.num_integration_steps.sum()) for info in infos],
        "scan/while/while/while": [None, None],
    }


def chains() -> Callable[[], Any]:
    """Eight chains of BlackJAX's NUTS under vmap."""
    sampler = blackjax.nuts(log_density, step_size=0.2, inverse_mass_matrix=jnp.ones(10))

    def chain(key: Any, start: Any) -> Any:
        def draw(state: Any, key: Any) -> Any:
            state, info = sampler.step(key, state)
            return state, (state, info)

        return jax.lax.scan(draw, sampler.init(start), jax.random.split(key, DRAWS))[1]

    keys, starts = jax.random.split(jax.random.key(3), 8), jnp.linspace(-1.0, 1.0, 80).reshape(8, 10)
    sample = jax.jit(jax.vmap(chain))
    return lambda: sample(keys, starts)


def chains_counts(result: Any) -> Counts:
    """The sum over the chains."""
    counts: dict[str, list[int | None]] = {shape: [int(sum(n))] for shape, n in chains_lanes(result).items()}
    return counts | {"scan/while/while/while": [None]}


def chains_lanes(result: Any) -> Mapping[str, Any]:
    """By BlackJAX's information on each draw of each chain."""
    _, info = result
    return {
        "scan": [DRAWS] * 8,
        "scan/while": info.num_trajectory_expansions.sum(axis=1).tolist(),
        "scan/while/while": info.num_integration_steps.sum(axis=1).tolist(),
    }


# --- flax ----------------------------------------------------------------------------------------------------

LAYERS, STEPS, TIMES, WIDTH = 4, 3, 6, 8


class Block(nnx.Module):
    """One layer of a residual network."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm, self.linear = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        """The layer's output."""
        return x + nnx.gelu(self.linear(self.norm(x)))


class Residual(nnx.Module):
    """A residual network that scans over its layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        make = nnx.vmap(Block, in_axes=0, out_axes=0)
        self.blocks = nnx.split_rngs(splits=LAYERS)(make)(rngs)

    def __call__(self, x: Any) -> Any:
        """The network's output."""
        return nnx.scan(lambda block, x: block(x), in_axes=(0, nnx.Carry), out_axes=nnx.Carry)(self.blocks, x)


@nnx.jit
def train_step(network: Residual, optimizer: nnx.Optimizer, x: Any, y: Any) -> Any:
    """One step of Adam."""
    loss, gradients = nnx.value_and_grad(lambda n: jnp.mean((n(x) - y) ** 2))(network)
    optimizer.update(network, gradients)
    return loss


def layers() -> Callable[[], Any]:
    """`nnx.scan` over layers, trained under `nnx.jit`."""
    x = jax.random.normal(jax.random.key(4), (5, WIDTH))

    def run() -> Any:
        network = Residual(nnx.Rngs(0))
        optimizer = nnx.Optimizer(network, optax.adam(1e-2), wrt=nnx.Param)
        losses = [train_step(network, optimizer, x, jnp.sin(x)) for _ in range(STEPS)]
        return losses, jax.tree.leaves(nnx.state(network)), jax.tree.leaves(nnx.state(optimizer))

    return run


class Cell(nn.Module):
    """A recurrent cell that also returns its state."""

    @nn.compact
    def __call__(self, h: Any, x: Any) -> Any:
        """One time."""
        h = nn.tanh(nn.Dense(WIDTH)(h) + nn.Dense(WIDTH, use_bias=False)(x))
        return h, h


class Recurrent(nn.Module):
    """A layer that scans a cell over time."""

    @nn.compact
    def __call__(self, xs: Any, _: Any) -> Any:
        """The states over time, for the layer above."""
        cell = nn.scan(Cell, variable_broadcast="params", split_rngs={"params": False})()
        return cell(jnp.zeros(WIDTH), xs)[1], None


class Stack(nn.Module):
    """Such layers, scanned over."""

    @nn.compact
    def __call__(self, xs: Any) -> Any:
        """The states of the uppermost layer."""
        stack = nn.scan(Recurrent, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS)()
        return stack(xs, None)[0]


def recurrence() -> Callable[[], Any]:
    """`nn.scan` over time inside `nn.scan` over layers, under `jax.grad`."""
    xs, module = jax.random.normal(jax.random.key(5), (TIMES, WIDTH)), Stack()
    parameters = jax.jit(module.init)(jax.random.key(6), xs)

    def loss(parameters: Any) -> Any:
        states = module.apply(parameters, xs)
        return jnp.sum(states**2), states

    return lambda: jax.grad(loss, has_aux=True)(parameters)


PROGRAMS = (
    Program("diffrax-stiff", stiff, stiff_counts, {"select": "tprev"}, accepted_times, new_times),
    Program("diffrax-gradient", stiff_gradient, stiff_gradient_counts, {"select": nothing}),
    Program("optimistix-fit", fit, fit_counts, {"select": nothing}),
    Program(
        "numpyro-schools",
        lambda: numpyro_nuts(schools),
        numpyro_counts,
        {"select": "adapt_state.step_size"},
        lambda result: numpyro_field(result, "adapt_state.step_size"),
    ),
    Program(
        "numpyro-funnel",
        lambda: numpyro_nuts(funnel, 4),
        numpyro_counts,
        {"select": "num_steps", "max_depth": 0},
        lambda result: numpyro_field(result, "num_steps"),
    ),
    Program(
        "blackjax-adaptation",
        adaptation,
        adaptation_counts,
        {"select": "step_size"},
        lambda result: result[1].adaptation_state.step_size,
    ),
    Program(
        "blackjax-chains",
        chains,
        chains_counts,
        {"select": "position", "max_depth": 0},
        lambda result: result[0].position.swapaxes(0, 1).reshape(-1, 10),
        lanes=chains_lanes,
    ),
    Program(
        "nnx-layers",
        layers,
        lambda result: {"scan": [STEPS * LAYERS]},
        {"select": nothing},
    ),
    Program(
        "linen-recurrence",
        recurrence,
        lambda result: {"scan": [LAYERS], "scan/scan": [LAYERS * TIMES]},
        {"select": lambda leaves: leaves[0], "where": lambda path: "/" in path},
        lambda result: result[1],
        lambda values: values[-TIMES:],
    ),
)
