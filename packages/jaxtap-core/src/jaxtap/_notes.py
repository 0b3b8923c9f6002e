"""What is off about a recording, in plain sentences. Silence never looks like health."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax

from jaxtap._config import Selection, View
from jaxtap._equations import fits
from jaxtap._lanes import Span
from jaxtap._leaves import matches, nearest
from jaxtap._mark import Site
from jaxtap._report import LoopReport, PointReport


def notes(
    view: View,
    loops: Sequence[LoopReport],
    points: Sequence[PointReport],
    met: tuple[Collection[str], Collection[str]],
    sites: dict[tuple[str, str], Site],
    dropped: int,
    loops_elsewhere: int,
    traces: bool = False,
) -> tuple[str, ...]:
    """The sentences, most telling first.

    Args:
      view: what was asked for.
      loops: the account of each loop.
      points: that of each equation and marked value.
      met: of programs that were compiled through such a lens, primitives that are tapped and loops that are left out.
      sites: what is known of each address and kind.
      dropped: events dropped to keep within capacity.
      loops_elsewhere: loops of threads that the lens does not see.
      traces: whether it is told of traces.
    """
    tapped, left_out = met
    found: list[str] = []
    # Who has hooks says himself what they have not seen.
    others = bool(view.taps) or bool(view.hooks) or (traces and not view.ops)
    delivered = any(loop.executions for loop in loops)
    if not loops and not points and not others:
        found.append(_nothing_seen(view, loops_elsewhere, left_out))
    found += _untapped(view, {point.op for point in points if point.kind == "primitive"}, tapped)
    found += _unmatched(view, sites) if loops else []
    # Who asks for no loops but has taps, or traces, looks at those alone.
    asked = bool(view.ops) and (view.select is not None or view.outputs is not None)
    seen = any(point.events for point in points)
    if loops and not delivered and not found and not seen and (asked or not others):
        found.append(_all_quiet(view, loops))
    for loop in loops:
        if loop.unfinished and loop.selected:
            found.append(
                f"{loop.path} ({loop.source}) began {loop.executions} times and ended "
                f"{loop.executions - loop.unfinished} times: the program was cut off, or is still running."
            )
        if loop.missing > 0:
            found.append(f"{loop.path} ({loop.source}) sent {loop.delivered} events of {loop.expected}.")
    if dropped:
        found.append(f"{dropped} events were dropped to keep within the recorder's capacity.")
    return tuple(found)


def _untapped(view: View, met: Collection[str], tapped: Collection[str]) -> list[str]:
    """Taps that no equation fits. A tripwire that stays silent may lie in a program that was compiled before."""
    return [
        f"no equation was seen for the tap on {' or '.join(map(repr, tap.primitives))}: the code in the lens has none"
        f"{' at an address that its where= allows' if tap.where else ''}, or ran it in another thread or in a program "
        "compiled ahead of time. jaxtap.primitives(f, *args) lists what there is."
        for tap in view.taps
        if tap.kind == "primitive"
        and not any(fits(op, tap.primitives) for op in (*met, *(tapped if tap.trips_on else ())))
    ]


def _nothing_seen(view: View, loops_elsewhere: int, left_out: Collection[str]) -> str:
    if loops_elsewhere:
        return (
            "no loop was seen in this thread, while another thread ran loops: a lens is seen by the thread that opened "
            'it; pass threads="all" to see every thread.'
        )
    if jax.config.jax_disable_jit:
        return "no loop was seen: jax_disable_jit is set, under which loops run as plain Python."
    before = (
        f" A program that was compiled through such a lens before may have run, too, whose loops the filters "
        f"({_filters(view)}) leave out, such as {', '.join(sorted(left_out)[:5])}; JAX's own need internals=True."
    )
    return (
        "no loop was seen: the code in the lens ran no lax.scan, while_loop, fori_loop or map, or ran it in another "
        'thread (pass threads="all"), in another process, or in a program compiled ahead of time.'
    ) + (before if left_out else "")


def _all_quiet(view: View, loops: Sequence[LoopReport]) -> str:
    if all(loop.internal for loop in loops):
        return (
            f"only loops of JAX's own library were seen ({', '.join(loop.path for loop in loops[:5])}): pass "
            "internals=True to look at them."
        )
    own = [loop for loop in loops if not loop.internal]
    named = [f"{loop.path} ({loop.source})" if isinstance(view.where, str) else loop.path for loop in own[:5]]
    return (
        f"{len(own)} loops were seen and none sent anything: {', '.join(named)}. Either the filters "
        f"({_filters(view)}) left them out, or they were compiled and not run."
    )


def _filters(view: View) -> str:
    """The filters of a lens, as they were passed."""
    lanes = None if view.lanes is None else tuple(slice(*p) if isinstance(p, Span) else list(p) for p in view.lanes)
    where = view.where if view.where is None or isinstance(view.where, str) else view.where.value
    passed = {"where": where, "max_depth": view.max_depth, "lanes": lanes}
    return ", ".join(
        [f"{name}={value!r}" for name, value in passed.items() if value is not None] + [f"ops={view.ops!r}"]
    )


def _has(site: Site, selection: Selection | None, name: str) -> bool:
    if selection is not None and selection.finder is not None:
        return bool(selection.finder.value(site.names, site.treedef))
    return bool(matches(site.names, name))


def _unmatched(view: View, sites: dict[tuple[str, str], Site]) -> list[str]:
    """Names asked for that no loop has."""
    found: list[str] = []
    for argument, selection in (("select", view.select), ("select_ys", view.outputs)):
        kind = "carry" if argument == "select" else "output"
        own = {path: site for (path, what), site in sites.items() if what == kind}
        for name in (selection.names or ()) if selection else ():
            # Of a program that was compiled through such a lens before, loops are known by what they send alone.
            if not own or any(_has(site, selection, name) for site in own.values()):
                continue
            everything = dict.fromkeys(n for site in own.values() for n in site.names)
            close = nearest(name, everything)
            where = [f"{n} ({', '.join([p for p, s in own.items() if n in s.names][:2])})" for n in close]
            found.append(f"no loop has a leaf named {name!r} ({argument}=); nearest: {', '.join(where) or 'none'}.")
    return found
