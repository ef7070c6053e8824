#!/bin/sh
# The table of "From scratch" in docs/training.md, from the root of a clone. Some CPU minutes; its runs stay in
# runs/from_scratch, and the command goes on where it was stopped.
set -e
python -m benchmarks.from_scratch
