"""A lens for running JAX programs: see what changes inside their loops, live, and leave nothing behind."""

from jaxtap._api import emergency_restore, original_scan, record, verbose
from jaxtap._certify import Certificate, certify
from jaxtap._clash import warn_of_clash as _warn_of_clash
from jaxtap._collect import Collected, collect
from jaxtap._compile_log import Compile, CompileLog
from jaxtap._compiles import compiles
from jaxtap._diff import diff
from jaxtap._events import TapEvent
from jaxtap._guard import JaxtapWarning
from jaxtap._jsonl import JSONLWriter
from jaxtap._leaves import Leaves, SelectError
from jaxtap._loops import Leaf, Loop, Loops, loops
from jaxtap._partings import Parting, RecordingDiff
from jaxtap._points import mark
from jaxtap._primitives import Equation, Equations, primitives
from jaxtap._read_jsonl import read_jsonl
from jaxtap._realise import install as _install
from jaxtap._recorder import Events, FlightRecorder
from jaxtap._reducers import Reducer, health, histogram, norm, stats
from jaxtap._report import LoopReport, PointReport, Report
from jaxtap._retrace import Change
from jaxtap._sinks import Sink
from jaxtap._stages import Stages, stages
from jaxtap._stages_diff import StageChange, StagesDiff
from jaxtap._stations import CompiledStage, LoweredStage, TracedStage, Value
from jaxtap._tap_chunk import TapChunk
from jaxtap._taps import PrimitiveTap, on, print, trip, watch_nan
from jaxtap._timeline import Run, Span, Timeline
from jaxtap._tripped import Tripped
from jaxtap._version import __version__

__all__ = [
    "Certificate",
    "Change",
    "Collected",
    "Compile",
    "CompileLog",
    "CompiledStage",
    "Equation",
    "Equations",
    "Events",
    "FlightRecorder",
    "JSONLWriter",
    "JaxtapWarning",
    "Leaf",
    "Leaves",
    "Loop",
    "LoopReport",
    "Loops",
    "LoweredStage",
    "Parting",
    "PointReport",
    "PrimitiveTap",
    "RecordingDiff",
    "Reducer",
    "Report",
    "Run",
    "SelectError",
    "Sink",
    "Span",
    "StageChange",
    "Stages",
    "StagesDiff",
    "TapChunk",
    "TapEvent",
    "Timeline",
    "TracedStage",
    "Tripped",
    "Value",
    "__version__",
    "certify",
    "collect",
    "compiles",
    "diff",
    "emergency_restore",
    "health",
    "histogram",
    "loops",
    "mark",
    "norm",
    "on",
    "original_scan",
    "primitives",
    "print",
    "read_jsonl",
    "record",
    "stages",
    "stats",
    "trip",
    "verbose",
    "watch_nan",
]

_install()
_warn_of_clash()
