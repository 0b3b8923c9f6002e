"""The gradient pass: an identity on a value, whose transpose marks the cotangent of that value.

In a program that is not differentiated it is nothing. Its derivative is a linear identity on those tangents that
are not zero; transposing that marks the cotangents, in whatever the backward pass has become by then: the scan
that JAX makes of a scan's transpose, an unrolled body, a recomputation under checkpoint. Neither leaves an
operation in the compiled program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax.extend import core as jcore
from jax.interpreters import ad, batching, mlir

from jaxtap._jaxprs import is_literal
from jaxtap._mark import Path, Site, layer_of, mark_p

identity_p = jcore.Primitive("jaxtap_identity")
cotangent_p = jcore.Primitive("jaxtap_cotangent")


def is_differentiable(dtype: Any) -> bool:
    """Whether a value of this dtype has a cotangent."""
    return jnp.issubdtype(dtype, jnp.inexact)


def identity_eqn(operands: list[Any], site: Site, path: Path, lenses: tuple[Any, ...], source_info: Any) -> Any:
    """An equation that passes values on, under new variables."""
    params = {"site": site, "path": path, "lenses": lenses, "layers": ()}
    outs = [jcore.Var(v.aval) for v in operands]
    return jcore.new_jaxpr_eqn(operands, outs, identity_p, params, set(), source_info)


def is_identity(eqn: Any) -> bool:
    """Whether an equation passes values on so that their cotangents are marked."""
    return eqn.primitive is identity_p or eqn.primitive is cotangent_p


def passed_on(
    before: list[Any], outs: list[Any], variables: list[Any], site: Site, path: Path, keys: Any, info: Any
) -> list[Any]:
    """Let some outputs of a body pass through an identity.

    Args:
      before: the body's equations; the new one is put behind them.
      outs: the body's outputs.
      variables: positions in `outs` that are to pass.
      site: of the loop; its names are those of `variables`.
      path: address of the loop.
      keys: the lenses.
      info: source information.

    Returns:
      The outputs.
    """
    chosen = [
        (i, name)
        for i, name in zip(variables, site.names, strict=True)
        if not is_literal(outs[i]) and is_differentiable(outs[i].aval.dtype)
    ]
    if not chosen:
        return outs
    site = dataclasses.replace(site, names=tuple(name for _, name in chosen))
    eqn = identity_eqn([outs[i] for i, _ in chosen], site, path, keys, info)
    before.append(eqn)
    new = list(outs)
    for (i, _), var in zip(chosen, eqn.outvars, strict=True):
        new[i] = var
    return new


def _pass_on(*args: Any, **_: Any) -> list[Any]:
    return list(args)


def _batch(primitive: Any) -> Any:
    def rule(args: Any, dims: Any, *, layers: Any, **params: Any) -> Any:
        return primitive.bind(*args, layers=(*layers, layer_of(args, dims)), **params), dims

    return rule


def _some(params: dict[str, Any], which: list[int]) -> dict[str, Any]:
    """The parameters for some of the operands."""
    site: Site = params["site"]
    layers = tuple((size, tuple(dims[i] for i in which)) for size, dims in params["layers"])
    return {**params, "site": dataclasses.replace(site, names=tuple(site.names[i] for i in which)), "layers": layers}


def _identity_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    which = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero]
    new = list(tangents)
    if which:
        passed = cotangent_p.bind(*(tangents[i] for i in which), **_some(params, which))
        for i, t in zip(which, passed, strict=True):
            new[i] = t
    return list(primals), new


def _cotangent_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    # Only the first-order backward pass is told of.
    return cotangent_p.bind(*primals, **params), list(tangents)


def _cotangent_transpose(cotangents: Any, *_: Any, **params: Any) -> Any:
    which = [i for i, ct in enumerate(cotangents) if type(ct) is not ad.Zero]
    if which:
        mark_p.bind(*(cotangents[i] for i in which), **_some(params, which))
    return list(cotangents)


for _primitive in (identity_p, cotangent_p):
    _primitive.multiple_results = True
    _primitive.def_impl(_pass_on)
    _primitive.def_abstract_eval(lambda *avals, **_: list(avals))
    batching.primitive_batchers[_primitive] = _batch(_primitive)
    mlir.register_lowering(_primitive, lambda _, *args, **__: list(args))
ad.primitive_jvps[identity_p] = _identity_jvp
ad.primitive_jvps[cotangent_p] = _cotangent_jvp
ad.primitive_transposes[cotangent_p] = _cotangent_transpose
