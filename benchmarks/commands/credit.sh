#!/bin/sh
# The figures of docs/credit.md, from the root of a clone. The last line needs torchrl 0.14.1 and trl 1.16.0 beside torch.
set -e
python -m benchmarks.credit
python -m benchmarks.credit --lam 0.9 --hops 32
python -m benchmarks.peers_losses
