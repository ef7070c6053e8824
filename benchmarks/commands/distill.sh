#!/bin/sh
# The table of docs/distill.md, from the root of a clone: four ALFWorld experts into one student, three seeds.
set -e
python -m benchmarks.distill --seeds 3 --out runs/distill --json runs/distill/results.json
