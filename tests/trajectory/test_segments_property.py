"""What must hold of any history, with a tokenizer whose texts have several encodings.

Replies are sampled in a random encoding, prompts are rendered in the greedy one (sometimes in a random one), so a
prompt rarely begins with the tokens that were sampled. Two agents, compaction, retries, edited, empty, cut off and
prefilled replies, and going back are mixed at random.
"""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.messages import assistant, system, user
from agentgym.trajectory.records import Reply
from agentgym.trajectory.segments import SegmentBuilder
from tests.trajectory.toy import END, answered, any_encoding, decode, plain, render


class History:
    """A random history, and what is true of it."""

    def __init__(self, seed, builder, *, render_any=False, moves=("grow", "grow", "grow", "compact")):
        self.rng = random.Random(seed)
        self.builder = builder
        self.moves = moves
        self.render_any = render_any
        self.sampled = {}  # step -> (ids, logprobs)
        self.superseded = set()
        self.boundaries = 0  # rewrites of a conversation that has begun, announced or not
        self.begun = set()  # agents that said something
        self.agents = {
            name: (system(name), user(self.text())) for name in ("ab", "ba")[: self.rng.choice((1, 2))]
        }

    def text(self, least=0):
        return "".join(self.rng.choice("abc") for _ in range(self.rng.randint(least, 6)))

    def encode(self, text):
        return any_encoding(text, self.rng.choice)

    def reply(self, conversation, *, cut=False):
        """A reply with at least one character, in some encoding; without its end token where it is cut."""
        text = self.text(least=1)
        ids = (*self.encode(text), *(() if cut else (END,)))
        logprobs = tuple(-self.rng.random() - 0.01 for _ in ids)
        prompt = render(conversation, self.encode) if self.render_any else render(conversation)
        return Reply(text, prompt, ids, logprobs, finish_reason="length" if cut else "stop")

    def add(self, agent, conversation, reply, **more):
        step = len(self.sampled)
        self.sampled[step] = (reply.sampled_ids, reply.logprobs)
        self.builder.add(conversation, reply, agent=agent, step=step, **more)
        return step

    def turn(self):
        agent = self.rng.choice(list(self.agents))
        conversation = self.agents[agent]
        move = self.rng.choice(self.moves)
        cause = None
        if move == "compact" and len(conversation) > 4:
            keep = self.rng.choice((0, 2))
            tail = conversation[-keep:] if keep else ()
            # The marker makes every summary a new one: an equal one would be no boundary.
            marker = "c" * (7 + len(self.sampled))
            conversation = (*conversation[:2], user(marker), *tail)
            cause = "compaction"
            self.boundaries += agent in self.begun
        elif move == "back" and len(conversation) > 4:
            conversation = (*conversation[:2], user("a" * (7 + len(self.sampled))))
            self.boundaries += agent in self.begun
        if move == "prefill":
            conversation = (*conversation, assistant(self.text(least=1)))
        if move == "retry":
            self.superseded.add(self.add(agent, conversation, self.reply(conversation)))
        if move == "rejected":
            step = self.add(agent, conversation, self.reply(conversation), accepted=False)
            self.superseded.add(step)
        if move == "empty":
            self.builder.add(conversation, Reply("", render(conversation), ()), agent=agent)
            self.agents[agent] = (*answered(conversation, ""), user(self.text()))
            return
        self.begun.add(agent)
        reply = self.reply(conversation, cut=move == "cut")
        self.add(agent, conversation, reply, cause=cause)
        said = reply.text
        if move == "edit":
            said = "c" * (7 + len(self.sampled))
        self.agents[agent] = (*answered(conversation, said), user(self.text()))


def check(history):
    """The invariants that hold whatever happened."""
    seen = set()
    for segment in history.builder.segments:
        length = len(segment.token_ids)
        assert len(segment.mask) == len(segment.rewards) == len(segment.logprobs) == length
        assert decode(segment.token_ids) == plain(segment.messages)
        mask, logprobs = [0] * length, [0.0] * length
        for place in segment.sampled:
            assert place.step not in seen, "a reply lies in two segments"
            seen.add(place.step)
            ids, known = history.sampled[place.step]
            assert tuple(segment.token_ids[place.start : place.stop]) == ids
            assert segment.messages[place.message].role == "assistant"
            assert place.superseded == (place.step in history.superseded)
            logprobs[place.start : place.stop] = known
            if not place.superseded:
                mask[place.start : place.stop] = [1] * len(ids)
        assert segment.mask == mask
        assert segment.logprobs == logprobs
        assert [a.stop <= b.start for a, b in pairwise(segment.sampled)] == [True] * (
            len(segment.sampled) - 1
        )
        if segment.parent is not None:
            parent = history.builder.segments[segment.parent]
            copied = segment.copied_messages
            assert parent.messages[:copied] == segment.messages[:copied]
            assert sum(segment.mask[: segment.copied_tokens]) == 0
    assert seen == set(history.sampled)


def run(history, turns):
    for _ in range(turns):
        history.turn()
    check(history)


EVERYTHING = ("grow", "grow", "compact", "back", "prefill", "retry", "rejected", "empty", "cut", "edit")


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 14), st.booleans())
def test_every_sampled_token_is_trained_once_whatever_happens(seed, turns, render_any):
    run(History(seed, SegmentBuilder(), render_any=render_any, moves=EVERYTHING), turns)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 14), st.booleans())
def test_with_known_ends_only_rewrites_begin_segments(seed, turns, render_any):
    moves = ("grow", "grow", "compact", "back", "retry", "rejected", "cut", "empty")
    history = History(seed, SegmentBuilder(end_of_turn=[END]), render_any=render_any, moves=moves)
    run(history, turns)
    causes = [segment.cause for segment in history.builder.segments]
    assert causes.count("compaction") + causes.count("fork") == history.boundaries
    assert causes.count("retry") == len(history.superseded)
    assert causes.count("start") <= len(history.agents)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 14), st.booleans())
def test_announced_rewrites_alone_never_fork(seed, turns, render_any):
    history = History(seed, SegmentBuilder(forks="error"), render_any=render_any)
    run(history, turns)
    assert all(event.kind != "fork" for event in history.builder.events)


@pytest.mark.slow
def test_a_thousand_histories():
    kinds = {}
    for seed in range(1000):
        history = History(seed, SegmentBuilder(), render_any=seed % 2 == 1, moves=EVERYTHING)
        run(history, 1 + seed % 17)
        for event in history.builder.events:
            kinds[event.kind] = kinds.get(event.kind, 0) + 1
    assert {"append", "realign", "fork", "compaction", "superseded", "empty_reply"} <= kinds.keys()
    assert kinds["realign"] > 0.1 * kinds["append"]
