"""Making a program smaller for as long as its result still moves."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from fidelity.plans import ENDS, FUSIBLE, SIZES, Block, Line, Plan

Chain = tuple[Line | Block, ...]


def narrowed(plan: Plan, moves: Callable[[Plan], bool]) -> Plan:
    """The smallest program on a way downhill from `plan` for which `moves` still holds."""
    for smaller in _smaller(plan):
        if moves(smaller):
            return narrowed(smaller, moves)
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Programs that are simpler in one respect, those that save most first."""
    for part in ("before", "after", "body"):
        for chain in _shorter(getattr(plan, part)):
            if chain or part != "body":
                yield dataclasses.replace(plan, **{part: chain})
    simplest: dict[str, list[Any]] = {
        "transform": ["jit"],
        "loop": ["scan"],
        "output": ["()", "a * b + c"],
        "leaves": list(range(1, plan.leaves)),
        "steps": list(range(1, plan.steps)),
        "captured": [False],
        "dtype": ["float32"],
        "size": [size for size in sorted(itertools.chain(*SIZES)) if size < plan.size],
        "end": [ENDS[-1]],
    }
    for field, values in simplest.items():
        for value in values:
            if getattr(plan, field) == value:
                break
            yield dataclasses.replace(plan, **{field: value})


def _shorter(chain: Chain) -> Iterator[Chain]:
    for n, line in enumerate(chain):
        before, after = chain[:n], chain[n + 1 :]
        yield before + after
        if isinstance(line, Block):
            yield before + line.lines + after
            for inner in _shorter(line.lines):
                if inner:
                    yield (*before, dataclasses.replace(line, lines=inner), *after)
        elif line.text != FUSIBLE[0]:
            yield (*before, dataclasses.replace(line, text=FUSIBLE[0]), *after)
