"""What is off about a recording, in plain sentences. Silence never looks like health."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax

from jaxtap._config import View
from jaxtap._equations import fits
from jaxtap._leaves import matches, nearest
from jaxtap._mark import Site
from jaxtap._report import LoopReport, PointReport


def notes(
    view: View,
    loops: Sequence[LoopReport],
    points: Sequence[PointReport],
    tapped: Collection[str],
    sites: dict[tuple[str, str], Site],
    dropped: int,
    loops_elsewhere: int,
    traces: bool = False,
) -> tuple[str, ...]:
    """The sentences, most telling first."""
    found: list[str] = []
    others = bool(view.taps) or (traces and not view.ops)
    delivered = any(loop.executions for loop in loops)
    if not loops and not points and not others:
        found.append(_nothing_seen(loops_elsewhere))
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


def _nothing_seen(loops_elsewhere: int) -> str:
    if loops_elsewhere:
        return (
            "no loop was seen in this thread, while another thread ran loops: a lens is seen by the thread that opened "
            'it; pass threads="all" to see every thread.'
        )
    if jax.config.jax_disable_jit:
        return "no loop was seen: jax_disable_jit is set, under which loops run as plain Python."
    return (
        "no loop was seen: the code in the lens ran no lax.scan, while_loop, fori_loop or map, or ran it in another "
        'thread (pass threads="all"), in another process, or in a program compiled ahead of time.'
    )


def _all_quiet(view: View, loops: Sequence[LoopReport]) -> str:
    where = "" if view.where is None else " where=,"
    depth = "" if view.max_depth is None else f" max_depth={view.max_depth},"
    reasons = f"{where}{depth} ops={view.ops!r}".strip()
    return (
        f"{len(loops)} loops were seen and none sent anything: {', '.join(loop.path for loop in loops[:5])}. Either "
        f"the filters ({reasons}) left them out, or they were compiled and not run."
    )


def _unmatched(view: View, sites: dict[tuple[str, str], Site]) -> list[str]:
    """Names asked for that no loop has."""
    found: list[str] = []
    for argument, selection in (("select", view.select), ("select_ys", view.outputs)):
        kind = "carry" if argument == "select" else "output"
        own = {path: site for (path, what), site in sites.items() if what == kind}
        for name in (selection.names or ()) if selection else ():
            if any(matches(site.names, name) for site in own.values()):
                continue
            everything = dict.fromkeys(n for site in own.values() for n in site.names)
            close = nearest(name, everything)
            where = [f"{n} ({', '.join([p for p, s in own.items() if n in s.names][:2])})" for n in close]
            found.append(f"no loop has a leaf named {name!r} ({argument}=); nearest: {', '.join(where) or 'none'}.")
    return found
