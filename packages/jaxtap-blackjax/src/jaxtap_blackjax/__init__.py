"""The part of jaxtap that knows BlackJAX.

This release has no selectors and no tripwires for BlackJAX yet: the package holds its place in the version
lockstep with jaxtap-core, on which it depends. `jaxtap` alone already sees the loops that BlackJAX runs.
"""

__version__ = "0.4.0"
