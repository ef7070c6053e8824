#!/bin/sh
# The figures of docs/opid.md, from the root of a clone. It needs the extras train, text and webshop, and SmolLM2.
set -e
# Tables of signs, truncation and training: about 15 CPU minutes, and 3 more the first time, to make the games.
python -m benchmarks.opid --out runs/opid-study --json runs/opid-study/figures.json
# The whole path on the paper's three settings with SmolLM2: one update on one task played twice, no result to speak of.
# Replies end with their first sentence: with so few tokens they would all be cut off, which a run refuses.
SHORT="--steps 1 --groups 1 --group-size 2 --max-turns 2 --max-new-tokens 24 --stop . --eval-every 0 --episode-skill 0.1
    --step-skill 0.1 --analyser oracle --keep-rollouts 1"
python -m baselines.opid --env agentgym/ALFWorld-v0 --prompts alfworld $SHORT --out runs/opid-alfworld
python -m baselines.opid --env agentgym/WebShop-v0 --set observation_mode=text --prompts webshop $SHORT --out runs/opid-webshop
python -m baselines.opid --env agentgym/SearchQA-v0 --set protocol=search-r1 --prompts search $SHORT --step-skills 2 \
    --out runs/opid-search
