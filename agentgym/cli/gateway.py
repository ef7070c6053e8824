"""Serve a policy to agent programs by the interfaces of OpenAI and Anthropic, and record what they do with it.

Any program that takes a base URL and an API key will do. The key names a session; a session becomes one trajectory,
whose segments hold the tokens that were sampled. Ctrl-C ends the open sessions and the gateway.

Example:
    agentgym gateway --policy hf:smollm2 --port 8765 --out runs/outside --key my-session
    OPENAI_BASE_URL=http://127.0.0.1:8765/v1 OPENAI_API_KEY=my-session my-agent ...
    curl -X DELETE -H 'Authorization: Bearer ADMIN' -d '{"reward": 1}' http://127.0.0.1:8765/sessions/my-session
"""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse, sampling
from agentgym.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from agentgym.gateway import Gateway, Session
    from agentgym.gateway.server import End

_PAUSE = 0.2  # seconds between looks at who is idle


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym gateway``."""

    policy: Annotated[str, tyro.conf.arg(metavar="POLICY")]
    """Who answers: hf:NAME, vllm:NAME, openai:MODEL, module:attribute, as for agentgym run."""
    host: str = "127.0.0.1"
    """Address to listen on. Whoever reaches it and has a key is answered."""
    port: int = 0
    """0 for any that is free."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for trajectories.jsonl."""
    key: tyro.conf.UseAppendAction[list[str]] = field(default_factory=list)
    """API key of a session to open at once; may be given again. By default one session with a random key."""
    model: tyro.conf.UseAppendAction[list[str]] = field(default_factory=list)
    """A model name that programs may ask for; may be given again. By default any."""
    protocol: Literal["hermes", "xml", "bash", "react", "native"] = "hermes"
    """How the policy writes tool calls; native: the server behind openai:MODEL takes tools and gives calls itself."""
    idle: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """End a session, truncated, after so long without a call."""
    max_calls: int | None = None
    """Calls in a session."""
    max_sampled: Annotated[int | None, tyro.conf.arg(metavar="TOKENS")] = None
    """Tokens that are sampled in a session."""
    max_context: Annotated[int | None, tyro.conf.arg(metavar="TOKENS")] = None
    """Tokens of one conversation."""
    tokens: str = "chars"
    """How --max-context is counted: chars, hf:NAME, or module:attribute."""
    seed: int = 0
    """Of the sampling."""
    temperature: float | None = None
    """Of the policy; what requests ask for is not applied."""
    max_new_tokens: int | None = None
    """Most tokens of a reply, the same."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """The server behind openai:MODEL."""
    json: bool = False
    """Print JSON once the gateway listens: addresses, keys, admin token."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym gateway``."""
    args = parse(Args, "gateway", __doc__, words)
    if args.idle is not None and not args.idle > 0:
        raise UsageError(f"expected --idle of more than 0 seconds, got {args.idle:g}")
    if args.out == "":
        raise UsageError("expected --out to name a folder, got ''")
    if len(set(args.key)) < len(args.key):
        raise UsageError("expected each --key once")
    from agentgym.gateway import Gateway, Limits
    from agentgym.policies import make_policy

    limits = Limits(calls=args.max_calls, sampled_tokens=args.max_sampled, context_tokens=args.max_context)
    token = secrets.token_urlsafe(16)
    with closing(make_policy(args.policy, **sampling(args))) as policy:
        gateway = Gateway(
            policy,
            host=args.host,
            port=args.port,
            protocol=args.protocol,
            limits=limits,
            models=args.model or None,
            tokens=args.tokens,
            seed=args.seed,
            out=args.out,
            admin_token=token,
        )
        # Ends as by Ctrl-C, also where that is ignored
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with gateway:
            keys = [gateway.open(key).key for key in (*args.key,) or (None,)]
            _announce(args, gateway, keys, token)
            _serve(args, gateway)
    return console.OK


def _serve(args: Args, gateway: Gateway) -> None:
    """Wait for Ctrl-C; sessions that nobody uses end meanwhile, the others then.

    Raises:
        InfrastructureError: the server ended before; the sessions did so with this error.
    """
    broken = ""
    try:
        while gateway.alive:
            time.sleep(_PAUSE)
            for session in _used(gateway):
                if args.idle is not None and time.monotonic() - session.used > args.idle:
                    _end(args, gateway, session, "truncated")
        broken = "the gateway's server ended by itself"
    except KeyboardInterrupt:
        pass
    for session in _used(gateway):
        _end(args, gateway, session, "cut off", broken)
    if broken:
        raise InfrastructureError(broken)


def _used(gateway: Gateway) -> list[Session]:
    """The open sessions in which something was asked: one that nobody has used waits for its program."""
    return [session for session in gateway.sessions if session.calls]


def _end(args: Args, gateway: Gateway, session: Session, end: End, broken: str = "") -> None:
    trajectory = gateway.close_session(session.key, end=end, infrastructure_error=broken)
    if not args.json:
        replies, segments = len(trajectory.steps), len(trajectory.segments)
        console.out().print(
            f"ended {trajectory.id}: {replies} replies in {segments} segments, {end}", style="dim"
        )


def _announce(args: Args, gateway: Gateway, keys: Sequence[str], token: str) -> None:
    urls = gateway.base_urls
    if args.json:
        row: dict[str, Any] = {
            "url": gateway.url,
            **urls,
            "keys": list(keys),
            "admin_token": token,
            "out": args.out,
        }
        console.print_json(row)
    else:
        openai, anthropic = urls["openai_base_url"], urls["anthropic_base_url"]
        print(f"{gateway.policy.name} answers at {gateway.url} until Ctrl-C")
        print(
            f"  chat completions    OPENAI_BASE_URL={openai} OPENAI_API_KEY={keys[0]}   (POST /v1/chat/completions)"
        )
        print(
            f"  Responses           OPENAI_BASE_URL={openai} OPENAI_API_KEY={keys[0]}   (POST /v1/responses)"
        )
        print(
            f"  Anthropic messages  ANTHROPIC_BASE_URL={anthropic} ANTHROPIC_API_KEY={keys[0]}   (POST /v1/messages)"
        )
        if keys[1:]:
            print(f"  other keys          {', '.join(keys[1:])}")
        print(f"  sessions            POST and GET {gateway.url}/sessions, DELETE {gateway.url}/sessions/KEY")
        print(f"                      with the header Authorization: Bearer {token}")
        kept = f"{args.out}/trajectories.jsonl" if args.out else "not kept; --out DIR keeps them"
        print(f"  trajectories        {kept}")
    sys.stdout.flush()
