#!/bin/sh
# The figures of docs/genac.md, from the root of a clone: first critics beside exact values (about 15 CPU minutes), then
# GenAC, PPO and GRPO on Relay-v0, three seeds each, from one cloned actor (about 10).
set -e
python -m benchmarks.genac --seeds 5 6 7 8 9 --json runs/genac-values.jsonl

python -m benchmarks.genac_worlds runs/genac-model
RELAY="--env agentgym/Relay-v0 --set hops=3 --set choices=4 --max-new-tokens 6 --eval-every 5 --eval-episodes 64
    --checkpoint-every 0 --keep-rollouts 0"
python -m baselines.cloning $RELAY --model runs/genac-model --demonstrator benchmarks.genac_worlds:Courier --lr 5e-3 \
    --groups 16 --steps 160 --out runs/genac-cloned
for seed in 0 1 2; do
    RUN="$RELAY --model runs/genac-cloned/model --lr 5e-4 --seed $seed"
    python -m baselines.genac $RUN --groups 16 --critic-model runs/genac-model --teacher baselines.rationales:relay \
        --sft 12 --sft-batch 4 --critic-lr 2e-3 --critic-tokens 40 --judgements 2 --span-probability 0 --steps 40 \
        --out runs/genac-genac-$seed
    python -m baselines.ppo $RUN --groups 16 --critic-lr 1e-3 --steps 40 --out runs/genac-ppo-$seed
    python -m baselines.grpo $RUN --groups 4 --group-size 4 --steps 40 --out runs/genac-grpo-$seed
done
python -m benchmarks.genac_runs runs/genac-genac-* runs/genac-ppo-* runs/genac-grpo-*
