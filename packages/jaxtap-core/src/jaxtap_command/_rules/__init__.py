"""Static rules for JAX hazards. They read source, and run and import nothing of it."""

from jaxtap_command._rules._base import Finding, Rule
from jaxtap_command._rules._check import check
from jaxtap_command._rules._table import RULES

__all__ = ["RULES", "Finding", "Rule", "check"]
