"""What adapters are built of. Semi-public: the adapters of this repository use it, and move with it."""

from jaxtap._config import ByIdentity, Marks, Selection, View, check_callable, check_count, selection
from jaxtap._documented import documented
from jaxtap._guard import Guard, say, warn
from jaxtap._judging import Judge, NonFinite, Often, Outside, Rule, Spike, Unchanged
from jaxtap._leaves import parts
from jaxtap._patches import Patch
from jaxtap._points import hook_settings, mark_for
from jaxtap._rows import Columns, Row, Rows, table, variant
from jaxtap._selectors import Field, Selector
from jaxtap._sizes import BY, group_of, leaves_by, non_finite, norm, square_sum, words
from jaxtap._tripwires import OnColumn, OnRow, Panel, Trip, Tripwire, Watching, chosen, deciding, fitting
from jaxtap._watch import Choices, Plan, Watch

__all__ = [
    "BY",
    "ByIdentity",
    "Choices",
    "Columns",
    "Field",
    "Guard",
    "Judge",
    "Marks",
    "NonFinite",
    "Often",
    "OnColumn",
    "OnRow",
    "Outside",
    "Panel",
    "Patch",
    "Plan",
    "Row",
    "Rows",
    "Rule",
    "Selection",
    "Selector",
    "Spike",
    "Trip",
    "Tripwire",
    "Unchanged",
    "View",
    "Watch",
    "Watching",
    "check_callable",
    "check_count",
    "chosen",
    "deciding",
    "documented",
    "fitting",
    "group_of",
    "hook_settings",
    "leaves_by",
    "mark_for",
    "non_finite",
    "norm",
    "parts",
    "say",
    "selection",
    "square_sum",
    "table",
    "variant",
    "warn",
    "words",
]
