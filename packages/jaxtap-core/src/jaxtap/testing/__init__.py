"""For tests: what a lens sees of a program, whether the program stays the same under it, and a clock of one's own."""

from jaxtap.testing._bits import assert_identical
from jaxtap.testing._clock import Clock
from jaxtap.testing._recorded import Recorded, assert_untouched, recorded, wait

__all__ = ["Clock", "Recorded", "assert_identical", "assert_untouched", "recorded", "wait"]
