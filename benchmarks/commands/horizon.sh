#!/bin/sh
# The tables of "Over long horizons" in docs/training.md, from the root of a clone. A few CPU minutes.
set -e
python -m benchmarks.horizon
python -m benchmarks.horizon --hops 64 --compactions 15
