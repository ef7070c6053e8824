"""Trainers, each one file to read from top to bottom; run them from a clone: ``python -m baselines.grpo --help``."""
