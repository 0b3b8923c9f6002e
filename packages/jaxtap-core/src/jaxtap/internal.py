"""What adapters are built of. Semi-public: the adapters of this repository use it, and move with it."""

from jaxtap._config import ByIdentity, Marks, Selection, View, check_callable, check_count, selection
from jaxtap._guard import Guard, say, warn
from jaxtap._leaves import parts
from jaxtap._patches import Patch
from jaxtap._points import hook_settings, mark_for
from jaxtap._rows import Columns, Row, Rows, table
from jaxtap._selectors import Field, Selector
from jaxtap._tripwires import (
    Judge,
    NonFinite,
    Often,
    OnColumn,
    Outside,
    Rule,
    Spike,
    Trip,
    Tripwire,
    Unchanged,
    Watching,
    chosen,
)
from jaxtap._watch import Choices, Plan, Watch

__all__ = [
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
    "Outside",
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
    "hook_settings",
    "mark_for",
    "parts",
    "say",
    "selection",
    "table",
    "warn",
]
