"""Play episodes of an environment with a policy, print what came of them, keep the trajectories.

Policies: random, gold, null, repeat, human, replay:FILE, hf:NAME_OR_PATH, vllm:NAME_OR_PATH, openai:MODEL,
module:attribute.
With --out the same command continues a run that was cut off.

Example:
    agentgym run agentgym/Relay-v0 --policy gold --episodes 20 --out runs/gold
    agentgym run agentgym/SWE-v0 --policy gold --episodes all --out runs/repaired
    agentgym run agentgym/SWE-v0 --policy hf:smollm2 --agent-cmd "my-agent --model {model} --task {task_file}"
    agentgym run agentgym/Relay-v0 --set scenery=400 --compact 2000 --summarizer policy --policy hf:smollm2
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.agent import Agent, take_screening
from agentgym.cli.arguments import parse, read_run, sampling, try_once, what_was_run
from agentgym.cli.stack import Stack
from agentgym.errors import InfrastructureError, UsageError
from agentgym.registration import require

if TYPE_CHECKING:
    from agentgym.trajectory.records import Trajectory


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym run``."""

    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ID")]]
    """The environment's id, or module:id."""
    policy: Annotated[str, tyro.conf.arg(metavar="P")] = "random"
    """Who plays; see above."""
    episodes: Annotated[int | Literal["all"], tyro.conf.arg(metavar="N|all")] = 10
    """How many, each on a task that is drawn; all: every task of the split once."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Of the run: each episode's own seed follows from it and from the episode's number."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for trajectories.jsonl and summary.json. Default: nothing is kept."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Episodes at a time. Default: what suits the policy."""

    task: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID")]] = ()
    """Play this task instead of drawing; several are played in turn."""
    episode_timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Cut an episode off after this long."""
    stack: tyro.conf.OmitArgPrefixes[Stack] = field(default_factory=Stack)
    agent: tyro.conf.OmitArgPrefixes[Agent] = field(default_factory=Agent)

    temperature: Annotated[float | None, tyro.conf.arg(metavar="T")] = None
    """For policies that sample."""
    max_new_tokens: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """For policies that generate: most tokens of one reply."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """For openai:MODEL, and for vllm:NAME behind a server; the key comes from the usual environment variable."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym run``."""
    args = parse(Args, "run", __doc__, words)
    with console.stdout_reserved(args.json):
        trajectories = _play(args)
        if args.out:  # with the episodes of earlier calls
            _, trajectories = read_run(args.out)
        from agentgym.trajectory.stats import summary as sum_up

        summary = what_was_run(trajectories) | sum_up(trajectories) | {"out": args.out}
    if args.out:
        _write_atomic(Path(args.out) / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    if args.json:
        console.print_json(summary)
    else:
        _print(summary, _unit(args))
    _tell_full_contexts(trajectories)
    broken = [t.infrastructure_error for t in trajectories if t.infrastructure_error]
    if len(broken) == len(trajectories):
        raise InfrastructureError(f"every episode broke; the first: {broken[0].splitlines()[-1]}")
    return console.OK


def _play(args: Args) -> list[Trajectory]:
    if args.out == "":
        raise UsageError("expected --out to name a folder, got ''")
    if args.episodes != "all" and args.episodes < 1:
        raise UsageError(f"expected --episodes of at least 1, got {args.episodes}")
    if args.out and Path(args.out).exists() and not Path(args.out).is_dir():
        raise UsageError(f"expected --out to be a folder, got {args.out}")
    require(args.env)
    # Late, so that a misspelt flag is answered at once.
    from agentgym.policies import make_policy
    from agentgym.rollout import collect, make_env, with_models

    stack = args.stack.keywords(args.policy)
    program = args.agent.program(stack)
    screening = take_screening(stack) if program is not None else {}
    # Whether a budget holds the task, a form of prompts finds it, or a program has a place to work, shows at a reset.
    told_by_reset = (args.stack.compact, args.stack.prompts, program)
    with contextlib.ExitStack() as held:
        make = functools.partial(make_env, args.env, **with_models(stack, held))
        tasks = try_once(
            make, reset=any(told is not None for told in told_by_reset), program=program is not None
        )
        total = (len(args.task) or tasks) if args.episodes == "all" else args.episodes
        policy = held.enter_context(contextlib.closing(make_policy(args.policy, **sampling(args))))
        player = held.enter_context(args.agent.player(program, policy, screening))
        progress = held.enter_context(console.Progress("episodes", total))
        progress.step(done=min(_finished(args.out), total or 0))
        try:
            return collect(
                make,
                policy,
                episodes=None if args.episodes == "all" else args.episodes,
                seed=args.seed,
                out=args.out,
                workers=args.workers,
                tasks=args.task or None,
                episode_timeout=args.episode_timeout,
                player=player,
                on_finish=lambda trajectory: progress.step(_how_it_ended(trajectory, _unit(args))),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_what_was_kept(args)) from None


def _finished(out: str | None) -> int:
    """How many episodes stand in a run's folder."""
    from agentgym.trajectory.store import TrajectoryStore

    return len(TrajectoryStore(out).ids()) if out is not None else 0


def _what_was_kept(args: Args) -> str:
    if args.out is None:
        return "interrupted; nothing was kept, since no --out was given"
    kept = f"{_finished(args.out)} episodes are in {args.out}/trajectories.jsonl"
    return f"interrupted; {kept}; the same command goes on from there"


def _unit(args: Args) -> str:
    """What the steps of an episode are: where a program plays, what it does with a reply is its own."""
    return "turns" if args.agent.agent_cmd is None else "replies"


def _how_it_ended(trajectory: Trajectory, unit: str) -> str:
    if trajectory.infrastructure_error:
        return f"last: broke, {trajectory.infrastructure_error.splitlines()[-1][:60]}"
    return f"last: reward {trajectory.reward:.2f} in {trajectory.turns} {unit}"


def _tell_full_contexts(trajectories: Sequence[Trajectory]) -> None:
    """Say when episodes ended for want of room: a reward of 0 there is no measurement of the policy."""
    events = [(t, event) for t in trajectories for event in t.events if event.kind == "context_overflow"]
    if not events:
        return
    full = {t.id: t for t, _ in events}
    silent = sum(not t.steps for t in full.values())
    before = f", {silent} of them before the first reply" if silent else ""
    console.complain(
        f"warning: {len(full)} of {len(trajectories)} episodes met a full context of the model{before}; "
        f"the first: {events[0][1].data.get('why', '')} (--compact TOKENS rewrites a conversation before it is full)"
    )


def _write_atomic(path: Path, text: str) -> None:
    partial = path.with_suffix(".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _print(summary: dict[str, Any], unit: str) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("environment", escape(summary["id"]))
    table.add_row("policy", escape(summary["policy"]))
    table.add_row("episodes", str(summary["episodes"]))
    if summary["mean_reward"] is not None:
        low, high = summary["ci95"]
        table.add_row(
            "mean reward", f"[bold]{summary['mean_reward']:.3f}[/]  95% interval {low:.3f} to {high:.3f}"
        )
    table.add_row(
        "resolved", "{resolved} ({clean_resolved} clean, {hacked_resolved} hacked)".format_map(summary)
    )
    if summary["infrastructure_errors"]:
        table.add_row("broken episodes", f"[red]{summary['infrastructure_errors']}[/]")
    table.add_row(f"{unit} per episode", f"{summary['turns']:.1f}")
    table.add_row("segments", str(summary["segments"]))
    table.add_row("tokens", f"{summary['tokens']['prompt']} prompt, {summary['tokens']['sampled']} sampled")
    table.add_row("seconds", f"{summary['seconds']:.1f}, all episodes added up")
    screen = console.out()
    screen.print(table)
    if summary["out"]:
        folder = Path(summary["out"])
        screen.print(f"\nwrote {folder / 'trajectories.jsonl'}\nwrote {folder / 'summary.json'}", style="dim")
        screen.print(f"next: agentgym report {folder}, or agentgym view {folder}", style="dim")
    else:
        screen.print("\nnothing was kept; --out DIR keeps trajectories and summary", style="dim")
