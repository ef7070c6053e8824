"""Trajectories: records, segments, files, statistics, exchange with other formats, and pages for people."""

from agentgym.trajectory.records import (
    Call,
    Compaction,
    Event,
    Reply,
    Sampled,
    Segment,
    Step,
    Trajectory,
)
from agentgym.trajectory.segments import SegmentBuilder
from agentgym.trajectory.store import TrajectoryStore, from_dict, to_dict

__all__ = [
    "Call",
    "Compaction",
    "Event",
    "Reply",
    "Sampled",
    "Segment",
    "SegmentBuilder",
    "Step",
    "Trajectory",
    "TrajectoryStore",
    "from_dict",
    "to_dict",
]
