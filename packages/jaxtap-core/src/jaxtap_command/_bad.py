"""What ends the command early, and its exit codes."""

DONE, FOUND, BAD = 0, 1, 2


class BadInput(Exception):
    """One line that says what is wrong and what to do."""


class Failed(Exception):
    """One line that says how the user's program failed."""
