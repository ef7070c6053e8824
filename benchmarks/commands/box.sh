#!/bin/sh
# The learning table of baselines/README.md, from the root of a clone: SmolLM2 on a two-turn tool task, three seeds each,
# and a control that does not learn. About 3 (GRPO) and 6 (PPO) CPU minutes a run, 5 GB.
set -e
FLAGS="--env baselines.toys:Box-v0 --temperature 0.7 --eval-temperature 0.7 --max-new-tokens 10 --eval-episodes 52
    --eval-every 5 --checkpoint-every 0 --steps 10"
for seed in 0 1 2; do
    python -m baselines.grpo $FLAGS --groups 4 --seed $seed --out runs/box-grpo-$seed
done
for seed in 0 1 2; do
    python -m baselines.ppo $FLAGS --groups 32 --seed $seed --out runs/box-ppo-$seed
done
python -m baselines.grpo $FLAGS --groups 4 --lr 0 --out runs/box-grpo-control
python -m benchmarks.learning runs/box-*
