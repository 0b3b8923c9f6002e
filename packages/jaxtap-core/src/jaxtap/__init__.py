"""A lens for running JAX programs: see what changes inside their loops, live, and leave nothing behind."""

from jaxtap._api import emergency_restore, original_scan, record, verbose
from jaxtap._events import TapEvent
from jaxtap._guard import JaxtapWarning
from jaxtap._leaves import Leaves, SelectError
from jaxtap._realise import install as _install
from jaxtap._recorder import FlightRecorder
from jaxtap._report import LoopReport, Report

_install()
