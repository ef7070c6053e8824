"""`HFPolicy`: a local Hugging Face model that answers in batches and says exactly which tokens it read and wrote.

Prompt ids come from the model's chat template, sampled ids are the ones drawn, and the log-probs are those of the
distribution they were drawn from (none at temperature 0, where nothing is drawn). Sampling is by the inverse of the
cumulative distribution with one uniform number a token, drawn from each conversation's own seed: what else stands in
the batch changes a reply only through the last bits of the arithmetic.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.errors import ContextOverflow, UsageError
from agentgym.messages import Conversation, to_openai
from agentgym.policies import models
from agentgym.policies.base import Policy, Reply


class HFPolicy(Policy):
    """Generates with transformers, on the CPU or a GPU.

    A reply ends with the model's end-of-turn token, with a `stop` text, at `max_new_tokens`, or where the model's
    context is full. Its text is the decoded sampled ids, control tokens included, without a final end-of-turn token; a
    stop text stays in it.

    Args:
        name: ``"smollm2"`` (the packaged model), a directory, or a name in the local Hugging Face cache.
        max_new_tokens: most tokens of a reply.
        temperature: logits are divided by it before sampling; 0 takes the likeliest token. Replies have no log-probs
            there: nothing was sampled, and a trainer must not take it for sampling.
        seed: of the sampling, where `act` is given no seeds.
        dtype: "float32", or "bfloat16": half the memory, faster on hardware made for it, and log-probs that a second
            pass over the same ids reproduces only to some tenths.
        device: "auto" (cuda where there is one), or as torch names it.
        max_batch: conversations generated at a time.
        stop: texts that end a reply.

    Raises:
        MissingDependency: torch or transformers is not installed.
        UsageError: no such model on this machine.
        ContextOverflow: from `act`, a conversation leaves no room for a reply.
    """

    takes_seeds = True  # `act` takes seeds=

    def __init__(
        self,
        name: str | Path,
        *,
        max_new_tokens: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
        dtype: str = "float32",
        device: str = "auto",
        max_batch: int = 8,
        stop: Sequence[str] = (),
    ) -> None:
        if max_new_tokens < 1 or max_batch < 1 or temperature < 0:
            raise UsageError(
                "expected max_new_tokens >= 1, max_batch >= 1 and temperature >= 0, "
                f"got {max_new_tokens}, {max_batch} and {temperature}"
            )
        self.name = f"hf:{name}"
        self.max_new_tokens = max_new_tokens
        self.temperature = float(temperature)
        self.max_batch = max_batch
        self.stop = (stop,) if isinstance(stop, str) else tuple(stop)
        self.model, self.tokenizer = models.load(name, dtype, device)
        if not self.tokenizer.chat_template:
            raise UsageError(
                f"the tokenizer of {str(name)!r} has no chat template; an instruction-tuned model has one"
            )
        self.context = int(self.model.config.max_position_embeddings)
        self.end_ids = frozenset(
            _ids(self.model.generation_config.eos_token_id) + _ids(self.tokenizer.eos_token_id)
        )
        self.settings = {
            "max_new_tokens": max_new_tokens,
            "temperature": self.temperature,
            "seed": seed,
            "dtype": dtype,
            "stop": list(self.stop),
        }
        parameters = inspect.signature(self.model.forward).parameters
        self._cache_name = (
            "cache" if "cache" in parameters else "past_key_values"
        )  # renamed during transformers 5
        self._seeds = np.random.default_rng(seed)
        self._lock = threading.Lock()  # one generation at a time, whoever asks

    def act(
        self, conversations: Sequence[Conversation], *, seeds: Sequence[int] | None = None
    ) -> list[Reply]:
        """One reply each.

        Args:
            conversations: any number; they are generated `max_batch` at a time.
            seeds: one for each conversation: the same seed and conversation give the same reply, up to rounding. By
                default they are drawn from the policy's own seed, so the same calls in the same order repeat.
        """
        with self._lock:
            if seeds is None:
                seeds = [int(seed) for seed in self._seeds.integers(1 << 63, size=len(conversations))]
            prompts = [self.prompt_ids(conversation) for conversation in conversations]
            for position, prompt in enumerate(prompts):  # before anything is generated
                if len(prompt) >= self.context:
                    raise ContextOverflow(self._too_long(len(prompt)), position)
            replies: list[Reply] = []
            for start in range(0, len(prompts), self.max_batch):
                part = slice(start, start + self.max_batch)
                replies += self._generate(prompts[part], seeds[part])
            return replies

    def prompt_ids(self, conversation: Conversation) -> list[int]:
        """The token ids the model reads: the conversation in its chat template, and the beginning of a reply."""
        ids: list[int] = self.tokenizer.apply_chat_template(
            to_openai(conversation), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return ids

    def _too_long(self, tokens: int) -> str:
        reply = min(self.max_new_tokens, self.context // 4)
        return (
            f"{self.name}: a prompt of {tokens} tokens leaves no room for a reply in its context of {self.context}; "
            f"keep the conversation under it with --compact {self.context} --reply-tokens {reply} "
            f"--tokens {self.name} (ContextCompaction)"
        )

    def _generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> list[Reply]:
        """Generate one batch of B prompts, padded on the left to the longest, length P."""
        import torch
        from transformers import DynamicCache

        device = self.model.device
        longest = max(map(len, prompts))
        ids = torch.tensor(
            [[0] * (longest - len(p)) + p for p in prompts], device=device
        )  # (B, P); pads are masked
        mask = torch.tensor(
            [[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device
        )  # (B, P)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        uniforms = np.stack(
            [np.random.default_rng(seed).random(self.max_new_tokens) for seed in seeds]
        )  # (B, T)
        drafts = [_Draft(min(self.max_new_tokens, self.context - len(prompt))) for prompt in prompts]
        rows = list(range(len(prompts)))  # which prompt each row of the batch belongs to; finished ones leave
        cache = DynamicCache(config=self.model.config)
        with torch.inference_mode():
            for t in range(self.max_new_tokens):
                output = self.model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    use_cache=True,
                    logits_to_keep=1,
                    **{self._cache_name: cache},
                )
                tokens, logprobs = self._sample(output.logits[:, -1], uniforms[rows, t])  # (B,), (B,)
                for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
                    drafts[row].add(token, logprob)
                    if token in self.end_ids or self._stopped(drafts[row].ids):
                        drafts[row].finish_reason = "stop"
                    elif len(drafts[row].ids) == drafts[row].most:
                        drafts[row].finish_reason = "length"
                going = [i for i, row in enumerate(rows) if not drafts[row].finish_reason]
                if not going:
                    break
                keep = torch.tensor(going, device=device)
                if len(going) < len(rows):
                    rows = [rows[i] for i in going]
                    cache.batch_select_indices(keep)
                ids = tokens[keep, None]  # (B, 1)
                mask = torch.cat([mask[keep], mask.new_ones(len(going), 1)], dim=1)
                positions = positions[keep, -1:] + 1
        return [self._reply(prompt, draft) for prompt, draft in zip(prompts, drafts, strict=True)]

    def _sample(self, logits: Any, uniforms: Any) -> tuple[Any, Any]:
        """The next token of each row and its log-prob; logits are (B, V). At temperature 0 nobody keeps the second."""
        import torch

        logits = logits.double()  # cumulated over a vocabulary, float32 is too coarse
        logprobs = torch.log_softmax(logits / (self.temperature or 1.0), dim=-1)  # (B, V)
        if self.temperature == 0:
            tokens = logits.argmax(dim=-1)
        else:
            cumulated = logprobs.exp().cumsum(dim=-1)
            # Scaled to the actual sum, which rounding leaves a little off 1: the last token is never overshot.
            targets = torch.from_numpy(uniforms).to(logits.device)[:, None] * cumulated[:, -1:]
            tokens = torch.searchsorted(cumulated, targets, right=True)[:, 0]
        return tokens, logprobs.gather(1, tokens[:, None])[:, 0]

    def _stopped(self, ids: Sequence[int]) -> bool:
        if not self.stop:
            return False
        # A token is at least one byte, so the stop text lies in the last so many tokens.
        tail = self._decode(ids[-max(len(text.encode()) for text in self.stop) :])
        return any(text in tail for text in self.stop)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _reply(self, prompt: Sequence[int], draft: _Draft) -> Reply:
        ended = draft.ids[-1] in self.end_ids
        return Reply(
            self._decode(draft.ids[:-1] if ended else draft.ids),
            prompt_ids=tuple(prompt),
            sampled_ids=tuple(draft.ids),
            logprobs=tuple(draft.logprobs) if self.temperature else None,
            temperature=self.temperature,
            finish_reason=draft.finish_reason,
            end_of_turn=tuple(sorted(self.end_ids)),
        )


class _Draft:
    """A reply in the making."""

    def __init__(self, most: int) -> None:
        self.most = most  # tokens that fit
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason = ""

    def add(self, token: int, logprob: float) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)


def _ids(value: int | Sequence[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
