"""The stations of a call: what they say, what they leave unsaid, and that two runs write the same files."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxtap as tap
from jaxtap import _stations
from jaxtap._stations import CompiledStage, LoweredStage


def step(params: Any, x: Any, n: int = 2, *, loud: bool = False) -> Any:
    if loud:
        jax.debug.print("x {}", x.sum())
    out, ys = jax.lax.scan(lambda c, _: (jnp.tanh(c @ params["w"]), c), x, None, length=n)
    return {"out": out, "ys": ys}


PARAMS, X = {"w": jnp.ones((4, 4)), "unused": jnp.ones(3)}, jnp.ones((2, 4))
FILES = [
    "1-traced.jaxpr.txt",
    "2-lowered.hlo.sources.txt",
    "2-lowered.hlo.txt",
    "2-lowered.stablehlo.mlir",
    "2-lowered.stablehlo.sources.mlir",
    "3-compiled.hlo.txt",
    "summary.json",
]


def test_traced() -> None:
    traced = tap.stages(
        step, PARAMS, X, 3, static_argnums=2, donate_argnames="x", loud=True, static_argnames="loud"
    ).traced
    assert list(map(str, traced.inputs)) == [
        "params['unused']: f32[3]",
        "params['w']: f32[4,4]",
        "x: f32[2,4] donated",
    ]
    assert list(map(str, traced.outputs)) == ["result['out']: f32[2,4]", "result['ys']: f32[3,2,4]"]
    assert traced.operations["scan"] == traced.operations["tanh"] == 1 and "scan[" in traced.jaxpr
    assert len(traced.effects) == 1 and "Debug" in traced.effects[0] and "0x" not in traced.effects[0]
    assert traced.stage.jaxpr.eqns and traced.seconds > 0


class Model:
    def __call__(self, x: Any, *, scale: float = 1.0) -> Any:
        return x * scale


@pytest.mark.parametrize(
    ("f", "args", "kwargs", "options", "static"),
    [
        (step, (PARAMS, X, 3), {}, {"static_argnums": 2}, {"n": "3"}),
        (step, (PARAMS, X), {"n": 3, "loud": False}, {"static_argnames": ("n", "loud")}, {"n": "3", "loud": "False"}),
        (step, (PARAMS, X), {}, {}, {}),
        (step, (PARAMS, X), {}, {"donate_argnames": "x"}, {}),
        (lambda *xs: xs[1], (2.0, X), {}, {"static_argnums": 0}, {"xs[0]": "2.0"}),
        (lambda p, shape: p["w"].reshape(shape), (PARAMS, (2, 8)), {}, {"static_argnums": 1}, {"shape": "(2, 8)"}),
        (jax.grad(lambda x, n: x**n), (2.0, 3), {}, {"static_argnums": 1}, {"n": "3"}),
        (Model(), (X,), {"scale": 2.0}, {"static_argnames": "scale"}, {"scale": "2.0"}),
    ],
)
def test_static_arguments(f: Any, args: Any, kwargs: Any, options: Any, static: dict[str, str]) -> None:
    found = tap.stages(f, *args, **options, **kwargs)
    assert found.static == static
    lines = [f"    static {name}: {value}" for name, value in static.items()]
    assert found.report().splitlines()[1 : 1 + len(static)] == lines


def test_a_callable_object_has_a_name_and_a_place() -> None:
    found = tap.stages(Model(), X)
    assert found.name == "Model" and found.source.startswith("test_stages.py:") and "__call__" in found.source


def test_captured_arrays_are_no_inputs() -> None:
    table = jnp.arange(5.0)
    assert list(map(str, tap.stages(lambda i: table[i], jnp.int32(2)).traced.inputs)) == ["i: i32[]"]


def test_lowered() -> None:
    lowered = tap.stages(step, PARAMS, X).lowered
    text, with_sources = lowered.stablehlo(), lowered.stablehlo(sources=True)
    assert text and with_sources and "test_stages.py" in with_sources and "test_stages.py" not in text
    hlo, hlo_sources = lowered.hlo(), lowered.hlo(sources=True)
    assert hlo and hlo_sources and "test_stages.py" in hlo_sources and "test_stages.py" not in hlo
    cost = lowered.cost_before_optimisation
    assert cost and cost["flops"] and cost["bytes accessed"]


def test_compiled() -> None:
    compiled = tap.stages(step, PARAMS, X).compiled
    assert compiled.hlo and "is_scheduled=true" in compiled.hlo
    operations, memory = compiled.operations, compiled.memory
    assert operations and operations["while"] == 1
    assert memory and memory["arguments"] == 4 * (16 + 8) and memory["code"] is None
    assert compiled.input_shardings == ("cpu:0",) * 3 or compiled.input_shardings == ("cpu:0",) * 2
    assert compiled.output_shardings == ("cpu:0",) * 2 and compiled.output_formats == ("(0, 1)", "(0, 1, 2)")
    assert compiled.input_formats is not None


def test_a_jitted_function_and_shapes_alone() -> None:
    jitted = jax.jit(step, static_argnames="n")
    spec = jax.ShapeDtypeStruct((7, 4), jnp.float32)
    found = tap.stages(jitted, PARAMS, spec, n=1)
    assert found.wrapper is jitted and found.name == "step" and found.source.startswith("test_stages.py:")
    assert str(found.traced.inputs[-1]) == "x: f32[7,4]" and repr(found) == "<Stages of step: traced>"
    assert found.compiled is found.compiled and repr(found) == "<Stages of step: traced, lowered, compiled>"
    with pytest.raises(ValueError, match="donate_argnums: f is jitted already"):
        tap.stages(jitted, PARAMS, spec, donate_argnums=0)
    with pytest.raises(TypeError, match="f must be"):
        tap.stages(3)


def test_other_options_of_jit() -> None:
    found = tap.stages(step, PARAMS, X, jit_options={"keep_unused": True})
    assert found.compiled.input_shardings == ("cpu:0",) * 3


class Silent:
    """A backend that answers nothing."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(name)

        if name.endswith(("shardings", "formats")):
            fail()
        return fail


class Vague(Silent):
    """One that answers with numbers that say nothing."""

    def cost_analysis(self) -> Any:
        return [{"flops": -1.0, "bytes accessed": 12.0}]

    def memory_analysis(self) -> Any:
        class Stats:
            argument_size_in_bytes = 8
            output_size_in_bytes = temp_size_in_bytes = alias_size_in_bytes = 0
            generated_code_size_in_bytes = peak_memory_in_bytes = 0

        return Stats()


def test_what_a_backend_does_not_say() -> None:
    compiled, lowered = CompiledStage(Silent(), 0.0), LoweredStage(Silent(), 0.0)
    answers = (compiled.hlo, compiled.cost, compiled.memory, compiled.input_shardings, compiled.output_formats)
    assert answers == (None,) * 5 and compiled.operations is None
    assert (lowered.stablehlo(), lowered.hlo(), lowered.cost_before_optimisation) == (None,) * 3
    vague = CompiledStage(Vague(), 0.0)
    assert vague.cost == {"flops": None, "transcendentals": None, "bytes accessed": 12.0}
    assert vague.memory is not None
    assert (vague.memory["arguments"], vague.memory["temporary"], vague.memory["peak"]) == (8, 0, None)


def test_the_words_for_it(monkeypatch: Any) -> None:
    found = tap.stages(step, PARAMS, X)
    monkeypatch.setattr(found.compiled, "stage", Silent())
    monkeypatch.setattr(found.lowered, "stage", Silent())
    text = found.report()
    assert text.count(_stations.UNSAID) == 8 and " 0 flops" not in text
    assert found.files()["3-compiled.hlo.txt"] == "backend does not say\n"


def test_report() -> None:
    lines = tap.stages(step, PARAMS, X).report().splitlines()
    assert lines[0].startswith("wrapper   jit of step  test_stages.py:")
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        "wrapper",
        "traced",
        "lowered",
        "compiled",
    ]
    assert any(line.startswith("    cost before optimisation: flops ") for line in lines)
    assert len(lines) < 40
    many = tap.stages(lambda *xs: sum(xs), *range(50)).report().splitlines()
    assert "    in  ... 42 more" in many and len(many) < 40


def test_save_and_diff(tmp_path: Any) -> None:
    one, other = tap.stages(step, PARAMS, X), tap.stages(step, PARAMS, jnp.ones((3, 4)), donate_argnums=1)
    paths = one.save(tmp_path / "one")
    assert sorted(path.name for path in paths) == FILES == sorted(os.listdir(tmp_path / "one"))
    same = tap.stages.diff(one, tmp_path / "one")
    assert not same and repr(same) == "no difference"
    other.save(str(tmp_path / "other"))
    found = tap.stages.diff(str(tmp_path / "one"), tmp_path / "other")
    assert found and found.changes == tap.stages.diff(one, other).changes
    said = [str(change) for change in found.changes]
    assert said[0] == "traced: inputs x f32[2,4] → f32[3,4] donated"
    assert any(line.startswith("lowered: cost before optimisation flops ") for line in said)
    assert any(line.startswith("compiled: memory outputs ") for line in said)
    assert set(found.texts) == set(FILES) - {"summary.json"}
    assert "3-compiled.hlo.txt: " in repr(found) and "lines more" in repr(found)
    with pytest.raises(FileNotFoundError, match=r"holds no summary.json: write one with jaxtap.stages"):
        tap.stages.diff(one, tmp_path)


def test_two_runs_write_the_same_files(tmp_path: Any) -> None:
    code = """
        import jax, jax.numpy as jnp, numpy as np, jaxtap as tap
        table = np.arange(4.0, dtype=np.float32)
        def f(p, k):
            jax.debug.print("{}", p["a"].sum())
            k = jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), "float32"), k)
            turn = lambda c: (jnp.linalg.cholesky(c[0]) + c[0], c[1] + 1)
            y, _ = jax.lax.while_loop(lambda c: c[1] < 5, turn, (p["b"], 0))
            y = jax.nn.relu(y) + jax.nn.logsumexp(y)
            return {"s": y @ table + k, "t": jax.random.normal(jax.random.key(0), (3,))}
        args = {"a": jnp.ones(3), "b": jnp.eye(4)}, jnp.float32(1)
        print(len(tap.stages(f, *args, donate_argnums=0).save(DIRECTORY)))
    """
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code).replace("DIRECTORY", repr(str(tmp_path / seed)))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            timeout=240,
            capture_output=True,
        )
    assert not tap.stages.diff(tmp_path / "1", tmp_path / "2")
    for name in FILES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_constants_are_kept() -> None:
    texts = [
        tap.stages(lambda x, k=k: x + jnp.full(3, k).at[0].set(2), jnp.ones(3)).lowered.stablehlo() for k in (0.3, 0.7)
    ]
    assert texts[0] != texts[1]
    assert _stations.stable('<f at 0x7f00aa> dense<"0x0000803F">') == '<f at 0x> dense<"0x0000803F">'
    assert _stations.stable('{fingerprint_before_lhs="45e5dc"}') == '{fingerprint_before_lhs=""}'


def test_nothing_is_run_or_changed() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.callback(seen.append, x)
        return x

    tap.stages(f, 1.0).report()
    jax.effects_barrier()
    assert not seen
