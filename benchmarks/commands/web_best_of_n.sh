#!/bin/sh
# The figures of docs/web-measures.md, from the root of a clone. It needs a browser and the extras web, report and monitor.
set -e
python -m benchmarks.web_best_of_n
