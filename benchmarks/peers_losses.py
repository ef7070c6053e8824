"""Our credit and losses beside torchrl's and TRL's on the same rows: the largest difference of each.

    python -m benchmarks.peers_losses [--json FILE] [--freeze]

Needs torchrl and trl (any environment that has them beside torch). `--freeze` writes rows and peers' numbers to
``tests/baselines/peers.json``, which the tests compare with ours on every run, without the peers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from agentgym.credit import segment_gae, token_weights
from baselines import losses

FROZEN = Path(__file__).resolve().parent.parent / "tests" / "baselines" / "peers.json"
REDUCE = {"grpo": "sequence", "bnpo": "token", "dapo": "token", "dr_grpo": "constant"}  # TRL's name -> ours
MAX_COMPLETION = 16  # tokens; the constant of Dr. GRPO

Case = dict[str, Any]


def main() -> None:
    """Run the peers, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write the table here")
    parser.add_argument("--freeze", action="store_true", help="write rows and peers' numbers for the tests")
    args = parser.parse_args()
    recorded = {
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "torchrl", "trl")},
        "gae": [case | {"peer": torchrl_gae(case)} for case in gae_cases()],
        "rows": loss_rows(),
        "loss": [form | {"peer": trl_loss(loss_rows(), form)} for form in loss_forms()],
    }
    rows = table(recorded)
    print("| peer | what | cases | numbers | largest difference |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['peer']} | {row['what']} | {row['cases']} | {row['numbers']} | {row['difference']:.1e} |"
        )
    if args.json:
        args.json.write_text(json.dumps({"versions": recorded["versions"], "rows": rows}, indent=1) + "\n")
    if args.freeze:
        FROZEN.write_text(json.dumps(recorded) + "\n")


def table(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """For each kind of case how far ours is from the peer's."""
    versions = recorded["versions"]
    found: dict[tuple[str, str], list[np.ndarray[Any, Any]]] = defaultdict(list)
    for case in recorded["gae"]:
        difference = np.subtract(ours_gae(case), case["peer"]["loop"])
        found[f"torchrl {versions['torchrl']}", f"GAE, {case['across']}"].append(difference)
        difference = np.subtract(ours_gae(case), case["peer"]["vectorised"])
        found[f"torchrl {versions['torchrl']}, vectorised", f"GAE, {case['across']}"].append(difference)
    for form in recorded["loss"]:
        difference = np.subtract(ours_loss(recorded["rows"], form), form["peer"])
        found[f"TRL {versions['trl']}", f"{form['loss_type']}, ratio per {form['level']}"].append(difference)
    return [
        {
            "peer": peer,
            "what": what,
            "cases": len(parts),
            "numbers": sum(part.size for part in parts),
            "difference": max(float(np.abs(part).max()) for part in parts),
        }
        for (peer, what), parts in found.items()
    ]


def gae_cases() -> list[Case]:
    """Chains of three segments of trainable tokens, terminated and truncated."""
    rng = np.random.default_rng(0)
    cases = []
    for across in ("stitch", "independent"):
        for gamma, lam in ((1.0, 1.0), (1.0, 0.95), (0.99, 0.9), (0.9, 0.3)):
            for truncated in (False, True):
                lengths = [5, 1, 8]
                rewards = [[0.0] * n for n in lengths]
                rewards[-1][-1] = 1.0
                rewards[0][2] = 0.25
                values = [rng.normal(size=n).round(6).tolist() for n in lengths]
                bootstrap = round(float(rng.normal()), 6) if truncated else 0.0
                if truncated and across == "independent":
                    continue  # what "independent" says of truncation has no counterpart there
                cases.append(
                    {
                        "across": across,
                        "gamma": gamma,
                        "lam": lam,
                        "bootstrap": bootstrap,
                        "rewards": rewards,
                        "values": values,
                    }
                )
    return cases


def ours_gae(case: Case) -> list[list[float]]:
    """Advantages and returns of all segments in a row; each also holds observations, with junk for values."""
    rng = np.random.default_rng(1)
    wide: dict[str, list[list[float]]] = {"rewards": [], "values": [], "masks": []}
    for rewards, values in zip(case["rewards"], case["values"], strict=True):
        at = np.sort(rng.choice(2 * len(values) + 3, size=len(values), replace=False))
        mask = np.isin(np.arange(2 * len(values) + 4), at)
        for name, numbers, junk in (("rewards", rewards, 0.0), ("values", values, 1e3), ("masks", 1.0, 0.0)):
            row = np.full(len(mask), junk)
            row[mask] = numbers
            wide[name].append(row.tolist())
    options = {key: case[key] for key in ("across", "gamma", "lam", "bootstrap")}
    credit = segment_gae(**wide, **options)
    keep = np.concatenate(wide["masks"]) > 0
    return [np.concatenate(rows)[keep].tolist() for rows in credit]


def torchrl_gae(case: Case) -> dict[str, list[list[float]]]:
    """The same from torchrl: a stitched chain is one sequence, independent segments are episodes that end."""
    import torch
    from torchrl.objectives.value import functional

    rewards, values = np.concatenate(case["rewards"]), np.concatenate(case["values"])
    following = np.append(values[1:], case["bootstrap"])
    ends = np.cumsum([len(row) for row in case["values"]]) - 1
    done = np.zeros(len(values), dtype=bool)
    if case["across"] == "independent":
        for end in ends[:-1]:
            rewards[end] += case["rewards"][-1][-1]  # what came after the segment
        done[ends] = True
    done[-1] = True
    terminated = done.copy()
    terminated[-1] = not case["bootstrap"]

    def column(numbers: Any) -> Any:
        return torch.as_tensor(numbers)[:, None]

    answers = {}
    for name, function in (
        ("loop", functional.generalized_advantage_estimate),
        ("vectorised", functional.vec_generalized_advantage_estimate),
    ):
        result = function(
            case["gamma"],
            case["lam"],
            *map(column, (values, following, rewards, done)),
            terminated=column(terminated),
        )
        answers[name] = [part[:, 0].tolist() for part in result]
    return answers


def loss_rows() -> Case:
    """Six replies with tool results inside, some cut short."""
    rng = np.random.default_rng(2)
    shape = 6, 14
    mask = (rng.random(shape) < 0.7) & (np.arange(14) < np.array([14, 9, 14, 3, 11, 6])[:, None])
    rows = {
        "mask": mask.astype(int).tolist(),
        "advantages": rng.normal(size=6).round(6).tolist(),
        "logprobs": (-rng.exponential(size=shape)).round(6),
    }
    for name, spread in (("old", 0.4), ("reference", 0.7)):
        rows[name] = (rows["logprobs"] + spread * rng.normal(size=shape)).round(6).tolist()
    rows["logprobs"] = rows["logprobs"].tolist()
    return rows


def loss_forms() -> list[Case]:
    """Every form of TRL's loss that we have too."""
    return [
        {"loss_type": loss_type, "level": level, "clip_high": clip_high, "dual_clip": dual_clip, "beta": beta}
        for loss_type in REDUCE
        for level in ("token", "sequence")
        for clip_high, dual_clip, beta in ((0.2, None, 0.0), (0.28, None, 0.04), (0.2, 1.5, 0.0))
    ]


def ours_loss(rows: Case, form: Case) -> list[float]:
    """The loss, and its gradient with respect to each trainable token's log-prob."""
    import torch

    mask = np.array(rows["mask"], dtype=bool)
    reduce = REDUCE[form["loss_type"]]
    weights = token_weights(
        list(mask), range(len(mask)), reduce=reduce, constant=MAX_COMPLETION if reduce == "constant" else None
    )

    def flat(numbers: Any) -> torch.Tensor:
        return torch.tensor(np.array(numbers)[mask], dtype=torch.float64)

    logprobs, old, w = flat(rows["logprobs"]).requires_grad_(), flat(rows["old"]), flat(weights)
    row_of, _ = mask.nonzero()
    sequence = form["level"] == "sequence"
    loss, _ = losses.policy_loss(
        logprobs,
        old,
        torch.tensor(rows["advantages"], dtype=torch.float64)[row_of],
        w,
        clip_high=form["clip_high"],
        dual_clip=form["dual_clip"],
        kind="gspo" if sequence else "ppo",
        rows=torch.tensor(row_of) if sequence else None,
    )
    loss = loss + form["beta"] * (w * losses.kl(logprobs, flat(rows["reference"]), "k3")).sum()
    loss.backward()
    assert logprobs.grad is not None
    return [loss.item(), *logprobs.grad.tolist()]


def trl_loss(rows: Case, form: Case) -> list[float]:
    """The same from TRL's trainer, which is told the log-probs in place of a model."""
    import torch
    from trl import GRPOTrainer

    mask = torch.tensor(rows["mask"])
    logprobs = torch.tensor(rows["logprobs"], dtype=torch.float64).requires_grad_()
    same = SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x, num_processes=1)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (
            logprobs,
            torch.zeros_like(logprobs),
            None,
        ),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _entropy_bonus_enabled=False,
        accelerator=same,
        args=SimpleNamespace(delta=form["dual_clip"], use_bias_correction_kl=False, steps_per_generation=1),
        aux_loss_enabled=False,
        beta=form["beta"],
        current_gradient_accumulation_steps=1,
        epsilon_high=form["clip_high"],
        epsilon_low=0.2,
        importance_sampling_level=form["level"],
        loss_type=form["loss_type"],
        max_completion_length=MAX_COMPLETION,
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=False,
    )
    ids = torch.zeros_like(mask)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": torch.ones_like(mask),
        "tool_mask": mask,
        "advantages": torch.tensor(rows["advantages"], dtype=torch.float64),
        "old_per_token_logps": torch.tensor(rows["old"], dtype=torch.float64),
        "ref_per_token_logps": torch.tensor(rows["reference"], dtype=torch.float64),
        "num_items_in_batch": mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    assert logprobs.grad is not None
    return [loss.item(), *logprobs.grad[mask.bool()].tolist()]


if __name__ == "__main__":
    main()
