"""One GRPO step beside TRL's, on the same model, prompts, batch and CPU, and what each saving brings.

    python benchmarks/training.py [--threads 2] [--steps 3] [--trl PYTHON] [--only NAME ...] [--json FILE]

SmolLM2-135M in float32: 2 prompts of about 164 tokens, 8 replies each of at most 64 tokens, one optimizer step. Each
side runs in a process of its own; the first step is not counted. CPU seconds are those of the whole process, memory is
the most it ever held. TRL is not one of the project's dependencies: --trl names a Python that can import it, by default
this one. TRL writes down the rows of its last step with its loss and gradient norm; ours are computed on the same rows.

`turns` plays one conversation of 30 turns and says what each turn costs, with the cache and without.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.messages import assistant, user

PROMPTS = (
    "Write one sentence about a lighthouse keeper who counts ships. "
    + "He counts them all day long and at night. " * 13,
    "Write one sentence about a baker who forgets the salt every day. "
    + "The bread is bland and nobody says so. " * 13,
)
REPLIES, LENGTH, RATE = 8, 64, 1e-6
SIDES = {
    "ours": {},
    "nothing shared": {"share_prefixes": False},
    "whole logits": {"chunk": 1 << 30},
    "layers again": {"recompute_layers": True},
    "two packs": {"max_tokens": 700},
    "both": {"max_tokens": 700, "recompute_layers": True},
}


def main() -> None:
    """Measure every side and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--trl", default=sys.executable)
    parser.add_argument("--only", nargs="*", choices=["trl", *SIDES, "turns"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(run_side(args.side, args.steps, args.rows)))
        return
    with tempfile.TemporaryDirectory() as folder:
        report = measure(args, Path(folder) / "rows.npz")
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def measure(args: argparse.Namespace, rows: Path) -> dict[str, Any]:
    """Run the sides one after the other, TRL first, since it writes the rows."""
    report: dict[str, Any] = {"threads": args.threads, "steps": args.steps}
    for side in args.only or ["trl", *SIDES, "turns"]:
        command = [args.trl if side == "trl" else sys.executable, __file__, "--side", side]
        command += ["--steps", str(args.steps), "--rows", str(rows)]
        root = str(Path(__file__).resolve().parent.parent)
        environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "PYTHONPATH": root}
        print(f"running {side} ...", flush=True)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            print(f"{side} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
            continue
        report[side] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def run_side(side: str, steps: int, rows: Path) -> dict[str, Any]:
    """One side, in this process."""
    if side == "turns":
        return turns()
    return trl_steps(steps, rows) if side == "trl" else our_steps(steps, rows, SIDES[side])


def reward(text: str) -> float:
    """Something that differs between replies."""
    return text.count("e") / (len(text) + 1)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def peak_gb() -> float:
    """The most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def trl_steps(steps: int, rows: Path) -> dict[str, Any]:
    """TRL's GRPOTrainer as it comes, but without a reference model, in float32."""
    import datasets
    import torch
    import transformers
    import trl

    from agentgym.policies import models

    marks: list[tuple[float, float]] = []
    first: dict[str, Any] = {}  # the batch of the first step, whose weights are those that everybody has

    class Trainer(trl.GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            if not first:
                keys = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
                first.update({key: inputs[key].detach().numpy().copy() for key in keys}, loss=float(loss))
            return loss

    class Marks(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append((time.perf_counter(), time.process_time()))

    model = transformers.AutoModelForCausalLM.from_pretrained(models.smollm2(), dtype=torch.float32)
    prompts = [[{"role": "user", "content": text}] for text in PROMPTS]
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            folder,
            per_device_train_batch_size=len(PROMPTS) * REPLIES,
            num_generations=REPLIES,
            max_completion_length=LENGTH,
            max_steps=steps + 1,
            learning_rate=RATE,
            beta=0.0,
            loss_type="grpo",
            max_grad_norm=1e9,
            use_cpu=True,
            bf16=False,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=config,
            processing_class=models.tokenizer("smollm2"),
            train_dataset=datasets.Dataset.from_dict({"prompt": prompts * (steps + 1)}),
            reward_funcs=lambda completions, **_: [reward(c[0]["content"]) for c in completions],
            callbacks=[Marks()],
        )
        trainer.train()
        norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    np.savez(rows, **first, gradient_norm=norms[0])
    return {
        **per_step(marks),
        "peak_gb": peak_gb(),
        "version": trl.__version__,
        "loss": first["loss"],
        "gradient_norm": norms[0],
    }


def per_step(marks: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Mean wall and CPU seconds of the steps between marks."""
    steps = np.diff(np.array(marks), axis=0)
    return {"wall_s": float(steps[:, 0].mean()), "cpu_s": float(steps[:, 1].mean())}


def our_steps(steps: int, rows: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The same step with the project's parts: sample, score with gradient, one AdamW step."""
    import torch

    from agentgym.credit import group_advantages
    from baselines.actor import Actor

    share = options.get("share_prefixes", True)
    options = {"max_tokens": 4096} | {key: value for key, value in options.items() if key != "share_prefixes"}
    batch_size = len(PROMPTS) * REPLIES
    actor = Actor("smollm2", device="cpu", max_new_tokens=LENGTH, max_batch=batch_size, **options)
    optimizer = torch.optim.AdamW(actor.parameters(), lr=RATE, weight_decay=0.0)
    groups = [n // REPLIES for n in range(batch_size)]
    asked = [(user(PROMPTS[group]),) for group in groups]
    replies: list[Any] = []

    def sample(step: int) -> None:
        seeds = range(step * batch_size, (step + 1) * batch_size)
        replies[:] = actor.policy.act(asked, seeds=seeds)

    def learn(step: int) -> None:
        rows = [row_of(reply.prompt_ids, reply.sampled_ids) for reply in replies]
        backward(actor, rows, group_advantages([reward(reply.text) for reply in replies], groups), share)
        optimizer.step()
        optimizer.zero_grad()
        actor.policy.weights_changed(str(step + 1))

    times = np.array([[timed(lambda n=n: sample(n)), timed(lambda n=n: learn(n))] for n in range(steps + 1)])
    wall, cpu = times[1:].mean(axis=0).T  # each of sampling and learning
    result = {
        "wall_s": float(wall.sum()),
        "cpu_s": float(cpu.sum()),
        "sample_cpu_s": float(cpu[0]),
        "learn_cpu_s": float(cpu[1]),
        "peak_gb": peak_gb(),
    }
    if rows.exists():
        result |= same_rows(np.load(rows), Actor("smollm2", device="cpu", **options), share)
    return result


def row_of(prompt: Sequence[int], sampled: Sequence[int]) -> Any:
    """A prompt with its reply, the reply trainable."""
    from baselines.actor import Row

    ids = np.array([*prompt, *sampled], np.int64)
    return Row(ids, np.arange(len(ids)) >= len(prompt))


def backward(actor: Any, rows: Sequence[Any], advantages: np.ndarray, share: bool) -> float:
    """Gradients of GRPO's loss (mean over replies of the mean over tokens); returns the loss."""
    import torch

    from agentgym.credit import broadcast, token_weights
    from baselines.losses import policy_loss
    from baselines.packs import packs

    masks, numbers = [row.mask for row in rows], range(len(rows))
    flat = [
        torch.tensor(np.concatenate([part[mask] for part, mask in zip(parts, masks, strict=True)])).float()
        for parts in (broadcast(advantages, masks, numbers), token_weights(masks, numbers, reduce="sequence"))
    ]
    total = 0.0
    for pack in packs(rows, max_tokens=actor.max_tokens, share_prefixes=share):
        scored, _ = actor.logprobs(pack, entropy=False)  # (M,)
        loss, _ = policy_loss(scored, scored.detach(), *(part[pack.flat] for part in flat))
        loss.backward()
        total += float(loss.detach())
    return total


def same_rows(first: Any, actor: Any, share: bool) -> dict[str, float]:
    """Our loss and gradient norm on TRL's first batch."""
    import torch

    rows = [
        row_of(first["prompt_ids"][n][prompt > 0], first["completion_ids"][n][completion > 0])
        for n, (prompt, completion) in enumerate(
            zip(first["prompt_mask"], first["completion_mask"], strict=True)
        )
    ]
    loss = backward(actor, rows, first["advantages"].astype(np.float64), share)
    return {"loss": loss, "gradient_norm": float(torch.nn.utils.clip_grad_norm_(actor.parameters(), 1e9))}


def turns(count: int = 30) -> dict[str, Any]:
    """CPU seconds of each turn of one conversation, and its tokens."""
    from agentgym.policies import make_policy

    result: dict[str, Any] = {}
    for name, cache_tokens in (("cache", 32_768), ("no cache", 0)):
        policy = make_policy("hf:smollm2", max_new_tokens=16, device="cpu", cache_tokens=cache_tokens)
        conversation = (user("You are in a house. Say where you go."),)
        seconds = []
        for turn in range(count):
            start = time.process_time()
            (reply,) = policy.act([conversation], seeds=[turn])
            seconds.append(time.process_time() - start)
            told = f"You see room {turn}. " + "It is dark here. " * 8
            conversation = (*conversation, assistant(reply.text), user(told))
        counts = policy.counts
        result[name] = {
            "first_turns_cpu_s": float(np.mean(seconds[1:6])),
            "last_turns_cpu_s": float(np.mean(seconds[-5:])),
            "prefill_tokens": counts.computed,
            "reused_tokens": counts.reused,
            "generated_tokens": counts.generated,
            "unique_tokens": reply.prompt_tokens + reply.sampled_tokens,
        }
    return result


def show(report: dict[str, Any]) -> None:
    """The tables."""
    names = ("wall s", "CPU s", "of TRL", "sample", "learn", "GB", "of TRL", "loss", "|gradient|")
    trl = report.get("trl")
    print("\n" + f"{'a step':16}" + "".join(f"{name:>11}" for name in names))
    for side in ("trl", *SIDES):
        if side not in report:
            continue
        row = report[side]
        cells = [
            f"{row['wall_s']:.1f}",
            f"{row['cpu_s']:.1f}",
            f"{row['cpu_s'] / trl['cpu_s']:.0%}" if trl else "-",
            f"{row['sample_cpu_s']:.1f}" if "sample_cpu_s" in row else "-",
            f"{row['learn_cpu_s']:.1f}" if "learn_cpu_s" in row else "-",
            f"{row['peak_gb']:.1f}",
            f"{row['peak_gb'] / trl['peak_gb']:.0%}" if trl else "-",
            f"{row['loss']:.6f}" if "loss" in row else "-",
            f"{row['gradient_norm']:.5f}" if "loss" in row else "-",
        ]
        name = f"TRL {row['version']}" if side == "trl" else side
        print(f"{name:16}" + "".join(f"{cell:>11}" for cell in cells))
    for name, row in report.get("turns", {}).items():
        print(
            f"30 turns, {name}: {row['first_turns_cpu_s']:.2f} CPU s a turn at first, {row['last_turns_cpu_s']:.2f} at "
            f"the end; {row['prefill_tokens']} tokens of prompts computed, {row['unique_tokens']} unique ones in all, "
            f"{row['generated_tokens']} of them generated"
        )


if __name__ == "__main__":
    main()
