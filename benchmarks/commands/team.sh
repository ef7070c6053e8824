#!/bin/sh
# The figures of docs/team-tasks.md, from the root of a clone: learners on HiddenNumber-v0, a scripted team and a scripted
# loner on all bundled tasks of ResearchTeam-v0. About 4 CPU minutes.
set -e
python -m benchmarks.team --seeds 5 --episodes 40000 --json "${OUT:-runs}/team.json"
