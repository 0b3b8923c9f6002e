"""The four stations of a jitted call, each as an object that says what it holds."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import jax

from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._signature import sharding_text, short_dtype

UNSAID = "backend does not say"
# Of a cost analysis, what is said of a program as a whole.
_COSTS = ("flops", "transcendentals", "bytes accessed")
_MEMORY = {
    "arguments": "argument_size_in_bytes",
    "outputs": "output_size_in_bytes",
    "aliased": "alias_size_in_bytes",
    "temporary": "temp_size_in_bytes",
    "peak": "peak_memory_in_bytes",
    "code": "generated_code_size_in_bytes",
}
# No program has none of these: a zero is what a backend puts where it does not count.
_NEVER_ZERO = ("peak", "code")


def asked(question: Callable[[], Any]) -> Any:
    """What a backend answers, or None where it has no answer."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - each backend has its own way of not implementing something
        return None


def stable(text: str) -> str:
    """A text without what differs from run to run: addresses in memory, and XLA's hashes of texts that hold some."""
    text = re.sub(r"\bat 0x[0-9a-f]+", "at 0x", text)
    return re.sub(r'(fingerprint_before_lhs=)"[0-9a-f]*"', r'\1""', text)


@dataclasses.dataclass(frozen=True)
class Value:
    """An input or output of a program.

    Attributes:
      name: its name, as `"params['w']"`, or `"result[0]"`.
      shape: its shape.
      dtype: its dtype, short: `"f32"`.
      donated: whether its memory is given to the program.

    >>> import jax.numpy as jnp
    >>> value = stages(lambda w: w * 2.0, jnp.ones(3)).traced.inputs[0]
    >>> value.name, value.shape, value.dtype
    ('w', (3,), 'f32')
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    donated: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]{' donated' if self.donated else ''}"


class TracedStage:
    """A function as equations.

    Attributes:
      stage: the `jax.stages.Traced`.
      seconds: how long tracing took; next to nothing where JAX had the trace.

    >>> import jax.numpy as jnp
    >>> traced = stages(lambda w: jnp.sin(w) * 2.0, 1.0).traced
    >>> traced.operations, [str(value) for value in traced.outputs]
    ({'sin': 1, 'mul': 1}, ['result: f32[]'])
    """

    def __init__(self, stage: Any, seconds: float) -> None:
        self.stage, self.seconds = stage, seconds

    @functools.cached_property
    def jaxpr(self) -> str:
        """The jaxpr as text."""
        return stable(str(self.stage.jaxpr))

    @property
    def effects(self) -> tuple[str, ...]:
        """Side effects, such as that of `jax.debug.print`."""
        effects = inner(self.stage.jaxpr).effects
        return tuple(sorted(type(e).__name__ if " at 0x" in repr(e) else str(e) for e in effects))

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Name, shape and dtype of each input, and whether it is donated."""
        leaves = jax.tree.leaves(self.stage.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
        names = inner(self.stage.jaxpr).debug_info.arg_names or ()
        names = (*names, *(f"input {i}" for i in range(len(names), len(leaves))))
        # Arrays that the function captures stand before its arguments.
        return tuple(
            Value(name, tuple(leaf.shape), short_dtype(str(leaf.dtype)), bool(leaf.donated))
            for name, leaf in zip(names[len(names) - len(leaves) :], leaves, strict=True)
        )

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Name, shape and dtype of each output."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(self.stage.out_info)
        return tuple(
            Value(f"result{jax.tree_util.keystr(path)}", tuple(leaf.shape), short_dtype(str(leaf.dtype)))
            for path, leaf in leaves
        )

    @property
    def operations(self) -> dict[str, int]:
        """How many equations there are of each primitive, inner ones included."""
        return dict(_primitives(self.stage.jaxpr).most_common())


def _primitives(jaxpr: Any) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for eqn in inner(jaxpr).eqns:
        found[eqn.primitive.name] += 1
        for sub in subjaxprs(eqn):
            found += _primitives(sub)
    return found


class LoweredStage:
    """A function as StableHLO, as XLA is given it.

    Attributes:
      stage: the `jax.stages.Lowered`.
      seconds: how long lowering took.

    >>> import jax.numpy as jnp
    >>> lowered = stages(jnp.sin, jnp.ones(8)).lowered
    >>> "stablehlo.sine" in lowered.stablehlo(), lowered.cost_before_optimisation["transcendentals"]
    (True, 8.0)
    """

    def __init__(self, stage: Any, seconds: float) -> None:
        self.stage, self.seconds = stage, seconds

    def stablehlo(self, *, sources: bool = False) -> str | None:
        """The program as StableHLO, with the lines of source that it comes from or without."""
        return asked(lambda: stable(self.stage.as_text(debug_info=sources)))

    def hlo(self, *, sources: bool = False) -> str | None:
        """The program as HLO, with the lines of source that it comes from or without."""
        return asked(lambda: stable(self.stage.as_text(dialect="hlo", debug_info=sources)))

    @functools.cached_property
    def cost_before_optimisation(self) -> dict[str, float | None] | None:
        """XLA's estimate for the program as it was written: what is fused away or shared later is counted, too.

        None, as a whole or of one, where the backend does not say.
        """
        return _costs(asked(self.stage.cost_analysis))


class CompiledStage:
    """A function as a program of the backend.

    Attributes:
      stage: the `jax.stages.Compiled`.
      seconds: how long compiling took.

    >>> import jax.numpy as jnp
    >>> compiled = stages(lambda x: x @ x, jnp.ones((4, 4))).compiled
    >>> compiled.memory["arguments"], compiled.cost is None or compiled.cost["flops"] > 0
    (64, True)
    """

    def __init__(self, stage: Any, seconds: float) -> None:
        self.stage, self.seconds = stage, seconds

    @functools.cached_property
    def hlo(self) -> str | None:
        """The program as HLO after optimisation; None where the backend does not say."""
        text = asked(self.stage.as_text)
        return None if text is None else stable(text)

    @functools.cached_property
    def cost(self) -> dict[str, float | None] | None:
        """XLA's estimate for the optimised program; None, as a whole or of one, where the backend does not say."""
        return _costs(asked(self.stage.cost_analysis))

    @functools.cached_property
    def memory(self) -> dict[str, int | None] | None:
        """Bytes of arguments, outputs, memory shared by both, temporaries, the peak, and code.

        None, as a whole or of one, where the backend does not say.
        """
        stats = asked(self.stage.memory_analysis)
        found = {name: getattr(stats, field, None) for name, field in _MEMORY.items()}
        found = {n: None if b == 0 and n in _NEVER_ZERO else b for n, b in found.items()}
        return found if any(found.values()) else None

    @property
    def input_shardings(self) -> tuple[str, ...] | None:
        """On which devices each input must be; without the inputs that the program does not use."""
        return _each(self.stage, "input_shardings", sharding_text)

    @property
    def output_shardings(self) -> tuple[str, ...] | None:
        """On which devices each output will be."""
        return _each(self.stage, "output_shardings", sharding_text)

    @property
    def input_formats(self) -> tuple[str, ...] | None:
        """The layout in memory of each input, the axis that varies slowest first."""
        return _each(self.stage, "input_formats", _layout)

    @property
    def output_formats(self) -> tuple[str, ...] | None:
        """The layout in memory of each output."""
        return _each(self.stage, "output_formats", _layout)

    @property
    def operations(self) -> dict[str, int] | None:
        """How many instructions there are of each kind after optimisation."""
        if self.hlo is None:
            return None
        text = re.sub(r"/\*.*?\*/", "", self.hlo)
        kinds = re.findall(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(", text, re.MULTILINE)
        return dict(collections.Counter(kinds).most_common())


def _costs(analysis: Any) -> dict[str, float | None] | None:
    if isinstance(analysis, (list, tuple)):
        analysis = analysis[0] if analysis else None
    # XLA leaves out what it does not count, and writes -1 or less where it does not know.
    found = {name: analysis.get(name, -1) if analysis else -1 for name in _COSTS}
    said = {name: float(n) if n >= 0 else None for name, n in found.items()}
    return said if any(n is not None for n in said.values()) else None


def _each(stage: Any, attribute: str, text: Callable[[Any], str]) -> tuple[str, ...] | None:
    found = asked(lambda: jax.tree.leaves(getattr(stage, attribute)))
    return None if found is None else tuple(asked(lambda leaf=leaf: text(leaf)) or UNSAID for leaf in found)


def _layout(form: Any) -> str:
    layout = form.layout
    tiling = f" tiled {layout.tiling}" if layout.tiling else ""
    return f"{tuple(layout.major_to_minor)}{tiling}"
