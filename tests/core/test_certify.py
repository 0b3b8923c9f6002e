"""The certificate: it finds each bit that moves, says where, and says when the program itself is to blame."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import jaxtap as tap
from jaxtap import _active, _certify

V = jnp.array([0.3, -0.2, 0.7, 1.1])


def loop(x: Any) -> Any:
    return lax.scan(lambda c, t: (jnp.sin(c) * t + c, c), x, jnp.arange(5.0))


def under_the_lens() -> bool:
    return bool(_active.active())


def moving(value: Any, other: Any) -> Any:
    """A program whose result depends on whether a lens is open."""
    return lambda: {"kept": V, "value": other if under_the_lens() else value}


def lowest_bit(value: Any) -> np.ndarray:
    """An array with the lowest bit of its first element turned around."""
    array = np.array(value)
    raw = array.reshape(-1).view(np.uint8)
    raw[0] ^= 1
    return array


@pytest.mark.parametrize("f", [loop, jax.jit(loop), jax.grad(lambda x: loop(x)[0].sum())], ids=["eager", "jit", "grad"])
@pytest.mark.parametrize(
    ("lens", "events"),
    [
        ({}, 5),
        ({"sample_every": 2}, 3),
        ({"ops": (), "taps": [tap.on("sin")]}, 5),
        ({"select_ys": lambda leaves: leaves[0]}, 10),
    ],
    ids=["carry", "sampled", "sin", "outputs"],
)
def test_a_lens_moves_nothing(f: Any, lens: dict[str, Any], events: int) -> None:
    found = tap.certify(f, V, **lens)
    assert found and found.identical and found.repeatable
    assert (found.first, found.ulps, found.different, found.events) == (None, None, 0, events)


def test_a_bare_array_has_a_name() -> None:
    value = np.float32(1.0)
    found = tap.certify(lambda: lowest_bit(value) if under_the_lens() else value)
    assert not found and not found.identical
    assert (found.first, found.ulps, found.different, found.leaves) == ("result", 1, 1, 1)


def test_the_first_leaf_that_moves_is_named() -> None:
    def f(x: Any) -> Any:
        carry, ys = loop(x)
        return carry, {"ys": lowest_bit(ys) if under_the_lens() else ys, "zs": -ys if under_the_lens() else ys}

    found = tap.certify(f, V)
    assert (found.first, found.ulps, found.different, found.leaves) == ("[1]['ys']", 1, 2, 3)
    assert found.repeatable
    assert repr(found) == ("<Certificate: 2 of 3 leaves moved, the first, [1]['ys'], by up to 1 ulp; 5 events>")


FLOATS = (
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    *(ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn),
)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: np.dtype(dtype).name)
def test_neighbours_are_one_apart(dtype: Any) -> None:
    """All numbers of a small dtype, or some of a large one, in their order."""
    width = int(jnp.finfo(dtype).bits)
    raw = np.arange(min(1 << width, 1 << 16), dtype=f"uint{np.dtype(dtype).itemsize * 8}")
    numbers = raw.view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = numbers.astype(np.float64)
    ordered = np.sort(wide[~np.isnan(wide) & ~np.signbit(wide)]).astype(dtype)
    assert _certify._distance(ordered[:-1], ordered[1:]) == 1
    assert len(np.unique(_certify._ordered(numbers))) == len(numbers)


@pytest.mark.parametrize(
    ("value", "other", "ulps"),
    [
        (np.float32(1), np.nextafter(np.float32(1), np.float32(2)), 1),
        (np.float32(1), np.nextafter(np.float32(1), np.float32(0)), 1),
        (np.float32([1, -1]), np.float32([1, -1.0000005]), 4),
        (np.float64(1), np.float64(1 + 3 * 2**-52), 3),
        (np.float64(-np.inf), np.float64(np.inf), 0xFFE0000000000001),
        (np.float32(0.0), np.float32(-0.0), 1),
        (np.float32(2**-149), np.float32(-(2**-149)), 3),
        (np.uint32(0x7FC00000).view(np.float32), np.uint32(0x7FC00002).view(np.float32), 2),
        (np.float32(np.inf), np.uint32(0x7F800001).view(np.float32), 1),
        (np.complex64(1 + 1j), np.complex64(1 + np.nextafter(np.float32(1), np.float32(2)) * 1j), 1),
        (np.complex128(1j), np.complex128(complex(-0.0, 1)), 1),
        (ml_dtypes.bfloat16(1), ml_dtypes.bfloat16(1.0078125), 1),
        (ml_dtypes.float8_e4m3fn(1), ml_dtypes.float8_e4m3fn(1.25), 2),
        (np.int32(-5), np.int32(7), 12),
        (np.int64(-(2**63)), np.int64(2**63 - 1), 2**64 - 1),
        (np.uint8(255), np.uint8(0), 255),
        (np.bool_(True), np.bool_(False), 1),
        (ml_dtypes.int4(-8), ml_dtypes.int4(7), 15),
        (1.0, 1.0 + 2**-52, 1),
        (3, 5, 2),
        (jax.random.key(1), jax.random.key(4), 3),
    ],
)
def test_distances(value: Any, other: Any, ulps: int) -> None:
    found = tap.certify(moving(value, other))
    assert not found
    assert (found.first, found.ulps, found.different, found.leaves) == ("['value']", ulps, 1, 2)
    assert tap.certify(moving(value, value)) and tap.certify(moving(other, other))


def test_nothing_to_compare() -> None:
    assert tap.certify(lambda: None).leaves == 0
    assert tap.certify(lambda: (np.zeros((0, 3)), np.zeros(3, jax.dtypes.float0))).leaves == 2


def test_a_program_that_is_not_deterministic_says_so() -> None:
    runs = iter(range(3))

    def f(x: Any) -> Any:
        return loop(x + next(runs))[0]

    found = tap.certify(f, V)
    assert not found.identical and not found.repeatable and found.first == "result"
    assert repr(found).endswith("; 5 events; not repeatable, two runs without a lens differ as well>")


def test_a_result_that_is_changed_later_was_copied() -> None:
    shared = np.zeros(3)

    def f() -> Any:
        shared[:] += 1.0
        return shared

    assert not tap.certify(f).repeatable


def test_f_runs_without_under_and_without() -> None:
    seen: list[bool] = []
    assert tap.certify(lambda: seen.append(under_the_lens()))
    assert seen == [False, True, False]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: tap.certify(3), TypeError, "f must be a function; got int"),
        (lambda: tap.certify(loop, V, n=3), TypeError, r"'n' is none of them.*functools\.partial\(f, n=\.\.\.\)"),
        (lambda: tap.certify(loop, V, sample_every=0), ValueError, "sample_every must be an integer of at least 1"),
        (lambda: tap.certify(lambda: {"name": "x"}), TypeError, r"\['name'\] of its result is a str"),
        (lambda: tap.certify(moving(V, V[:2])), ValueError, r"float32\[4\], the other has \['value'\]: float32\[2\]"),
        (lambda: tap.certify(moving(V, (V,))), ValueError, r"\['value'\]\[0\]"),
        (lambda: tap.certify(moving(V, None)), ValueError, "without and under the lens.*the other has nothing"),
        (lambda: tap.certify(moving(V, V.astype(jnp.int32))), ValueError, "f must not depend on.*int32"),
        (
            lambda: tap.certify(jax.jit(lambda x: x + 1.0, donate_argnums=0), V + 0.0),
            ValueError,
            r"donated\) args\[0\]",
        ),
        (lambda: jax.jit(lambda x: tap.certify(loop, x))(V), RuntimeError, "outside of jit"),
    ],
)
def test_errors_say_what_to_do(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_results_of_other_structures_without_a_lens() -> None:
    sizes = iter(range(1, 4))
    with pytest.raises(ValueError, match="f must be deterministic, but in two runs without a lens"):
        tap.certify(lambda: np.zeros(next(sizes)))


def test_no_lens_may_be_open_around() -> None:
    with tap.record() as rec, pytest.raises(RuntimeError, match="leave that one first"):
        tap.certify(loop, V)
    assert not rec.events
    assert tap.certify(loop, V)
