#!/bin/sh
# The table of "Over long horizons" in docs/training.md, from the root of a clone. About four CPU minutes.
set -e
python -m benchmarks.horizon
python -m benchmarks.horizon --hops 64 --compactions 15
for rate in 0.03 0.1 1; do
    python -m benchmarks.horizon --hops 256 --arms grpo --rate $rate
done
