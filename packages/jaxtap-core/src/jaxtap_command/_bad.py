"""What ends the command early."""


class BadInput(Exception):
    """One line that says what is wrong and what to do."""


class Failed(Exception):
    """One line that says how the user's program failed."""
