"""SWE-v0 and its tasks: records, source distributions turned into tasks, grading."""

from agentgym.envs.swe.env import SweEnv
from agentgym.envs.swe.records import SweRecord, load_records, write_records

__all__ = ["SweEnv", "SweRecord", "load_records", "write_records"]
