#!/bin/sh
# The study "From scratch" of docs/training.md, from the root of a clone. Its runs stay in runs/from_scratch, and the
# command goes on where it was stopped.
set -e
python -m benchmarks.from_scratch
