"""A random transformer of any size with a word-level tokenizer, saved like any Hugging Face model.

For studies that train from scratch and for tests: a model of half a million parameters samples and learns hundreds of
times faster than the smallest pretrained one. It knows the words of the texts it was made from and nothing else.

    python -m baselines.tiny --env agentgym/Relay-v0 --out runs/tiny
    python -m baselines.grpo --env agentgym/Relay-v0 --model runs/tiny --out runs/grpo
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from agentgym.cli import console, guarded
from agentgym.cli.arguments import parse, read_pairs
from agentgym.errors import UsageError, whole_number
from agentgym.messages import ROLES
from agentgym.policies.models import import_transformers, quiet
from agentgym.rollout import collect
from agentgym.trajectory.records import Trajectory

__all__ = ["make_model", "pieces", "texts_of"]

START, END, UNKNOWN = "<|im_start|>", "<|im_end|>", "<unk>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A word with the space before it, one sign, or one space: concatenated, the pieces are the text again.
_PIECE = r" ?\w+|[^\w\s]|\s"


def pieces(text: str) -> list[str]:
    """A text cut as the tokenizer cuts it: each word with the space before it, each sign alone."""
    return re.findall(_PIECE, text)


def texts_of(trajectories: Iterable[Trajectory], *, written: bool = True) -> list[str]:
    """Every text that a policy read in these trajectories and, unless told otherwise, what it wrote."""
    played = list(trajectories)
    messages = [message for t in played for segment in t.segments for message in segment.messages]
    read = [message.content for message in messages if written or message.role != "assistant"]
    # An answer to an empty reply stands in no segment.
    return [*read, *(step.observation for t in played for step in t.steps)]


def make_model(
    directory: str | Path,
    texts: Iterable[str],
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 512,
    seed: int = 0,
) -> Path:
    """Write a random Llama and its tokenizer.

    Args:
        directory: made if missing; `agentgym.policies.models.load` and ``hf:DIRECTORY`` read it.
        texts: every piece of them becomes a token; anything else is unknown.
        hidden: width of the model, a multiple of `heads`.
        layers: how many.
        heads: of the attention.
        context: most tokens of a conversation.
        seed: of the weights; no global generator is moved.

    Raises:
        UsageError: sizes that fit no model.
    """
    for name, size in (("hidden", hidden), ("layers", layers), ("heads", heads), ("context", context)):
        whole_number(name, size, least=1)
    if hidden % (2 * heads):
        raise UsageError(f"expected hidden to be a multiple of 2 * heads, got {hidden} and {heads}")
    transformers = import_transformers()
    import torch

    tokenizer = _tokenizer(texts)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        # transformers' 0.02 suits widths of thousands: at 64, attention begins so even that copying a word from earlier
        # in a conversation is not found in ten times the updates that it takes with this.
        initializer_range=hidden**-0.5,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids(START),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config)
    with quiet():
        model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return Path(directory)


def _tokenizer(texts: Iterable[str]) -> Any:
    import tokenizers

    transformers = import_transformers()
    known = dict.fromkeys(piece for text in texts for piece in pieces(text))
    vocabulary = dict.fromkeys([UNKNOWN, START, END, "\n", *ROLES, *sorted(known)])
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({piece: n for n, piece in enumerate(vocabulary)}, unk_token=UNKNOWN)
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_PIECE), "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        chat_template=CHATML,
    )


@dataclass(frozen=True)
class Args:
    """Flags of ``python -m baselines.tiny``."""

    env: str
    """Whose words the model shall know: they are read off episodes of the environment's own solver."""
    out: str
    """Folder to write the model into."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A keyword of the environment, key=value; the value is JSON or text."""
    texts: tuple[str, ...] = ()
    """Files of further text whose words it shall know, such as the answers of a critic or of an analyser."""
    episodes: int = 256
    """Episodes to read words from."""
    hidden: int = 64
    """Width of the model."""
    layers: int = 2
    """Layers of the model."""
    heads: int = 4
    """Heads of each attention."""
    context: int = 512
    """Most tokens of a conversation."""
    seed: int = 0
    """Of the weights and the episodes."""


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"expected a file of UTF-8 text as --texts, got {file}: {error}") from None


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.tiny``."""
    args = parse(
        Args, "tiny", __doc__, sys.argv[1:] if words is None else words, prefix="python -m baselines."
    )
    if (Path(args.out) / "config.json").exists():
        raise UsageError(f"there is a model in {args.out} already; expected a folder without one as --out")
    env_kwargs = read_pairs(args.set)
    # A solver says what is right; the others, who write anything, bring out what the environment answers to mistakes.
    texts = [_read(file) for file in args.texts]
    for policy, episodes in (("gold", args.episodes), ("random", args.episodes), ("null", 1)):
        played = collect(args.env, policy, episodes=episodes, seed=args.seed, env_kwargs=env_kwargs)
        texts += texts_of(played, written=policy == "gold")
    sizes = {"hidden": args.hidden, "layers": args.layers, "heads": args.heads, "context": args.context}
    print(f"wrote {make_model(args.out, texts, **sizes, seed=args.seed)}")
    return console.OK


if __name__ == "__main__":
    sys.exit(guarded(main))
