"""Segments out of replies: where one begins is derived from prefixes, why it begins the caller announces.

Every reply comes with the conversation it answered and, where the backend tells, the exact token ids. A
conversation that extends an open leaf (a segment's conversation with its reply) appends to that segment; the
longest match wins, ties go to the same agent, then to the segment extended last. A conversation that extends
none begins a new segment, whose parent is the segment it shares the longest prefix with. So compaction,
sub-agents and black-box agents need no special case. `docs/trajectories.md` lists every case with its rule;
`realign.py` holds the work on token ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from agentgym.errors import SegmentError, UsageError
from agentgym.messages import Conversation, Message
from agentgym.trajectory.realign import common_prefix, learn_end_of_turn, tail_start
from agentgym.trajectory.records import Cause, Event, Reply, Sampled, Segment
from agentgym.trajectory.tree import ROOT, Announced, Incoming, Leaf, MessageTree, Place, left_out, with_reply


class SegmentBuilder:
    """Builds the segments of one trajectory, reply by reply.

    Args:
        forks: what a boundary that nobody announced is: "count" logs it, "error" raises `SegmentError`.
        end_of_turn: token ids that end a message. Where none are given, here or by a reply, they are learned.
            They are needed to realign a prompt; a prompt that cannot be realigned begins a segment.

    Attributes:
        segments: in order of creation.
        events: for every reply but an agent's first one "append", "realign", "fork" or the announced cause;
            besides, every "empty_reply" and "superseded".
    """

    def __init__(
        self, forks: Literal["count", "error"] = "count", *, end_of_turn: Collection[int] = ()
    ) -> None:
        if forks not in ("count", "error"):
            raise UsageError(f"expected forks to be 'count' or 'error', got {forks!r}")
        self.forks = forks
        self.segments: list[Segment] = []
        self.events: list[Event] = []
        self._learn = not end_of_turn
        self._ends = set(end_of_turn)
        self._replies = 0
        self._agents: dict[int, str] = {}  # who replied at each step
        self._leaves: list[Leaf] = []  # of the segment with the same index
        self._tree = MessageTree()
        self._recent: dict[int, None] = {}  # segments, the one extended last at the end
        # (prompt node, agent) -> the segment that ends in a reply to that prompt which may yet be retried
        self._unsure: dict[tuple[int, str], int] = {}

    # -- what a caller uses ----------------------------------------------------------------------------------

    def add(
        self,
        conversation: Conversation,
        reply: Reply,
        *,
        agent: str = "policy",
        cause: Announced | None = None,
        step: int | None = None,
        accepted: bool | None = None,
        message: Message | None = None,
        parent: int | None = None,
    ) -> int | None:
        """Take one reply.

        Args:
            conversation: what the reply answered. If it ends in an assistant message, the reply continues
                that one.
            reply: text and, where known, `prompt_ids` with `sampled_ids`.
            agent: who replied.
            cause: why the conversation was rewritten, should this reply turn out to begin a segment.
            step: index of the reply in the trajectory's steps; `assign_reward` finds it by this.
            accepted: True where the reply was acted on; False where it was thrown away (kept, not trained);
                None where only what follows can tell: a later reply to the same prompt supersedes it, unless
                something continues it.
            message: the reply as later conversations will hold it, where that is not
                ``assistant(reply.text)``.
            parent: with cause "delegation": the segment that delegated, where the caller knows it.

        Returns:
            Index of the segment that holds the reply; None for an empty reply. A reply superseded later
            moves to a segment of its own; `segment_of` tells where a step's reply lies now.

        Raises:
            SegmentError: an unannounced boundary with ``forks="error"``; the reply is not taken.
        """
        if reply.end_of_turn:
            self._ends.update(reply.end_of_turn)
            self._learn = False
        if reply.sampled_ids is not None and not reply.sampled_ids and reply.text:
            raise UsageError(f"expected sampled ids for the reply {reply.text[:60]!r}, got none")
        now = step if step is not None else self._replies
        self._agents[now] = agent
        if not (reply.sampled_ids or reply.text or (message is not None and message.tool_calls)):
            self.events.append(Event("empty_reply", now, {"agent": agent}))
            self._replies += 1
            return None
        conversation = tuple(conversation)
        messages = with_reply(conversation, reply, message)
        new = Incoming(conversation, messages, reply, agent, cause, step, accepted, parent, now)
        place = self._locate(new)

        if accepted is False:
            index = self._begin(new, place, "retry")
        elif (retried := self._retried(new, place)) is not None:
            index = self._set_aside(retried, now)
        elif (extended := self._extend_leaf(new, place)) is not None:
            index = extended
        else:
            index = self._begin(new, place, self._cause(new, place))
        self._append_reply(index, new)
        self._replies += 1
        return index

    def assign_reward(self, step: int, reward: float) -> bool:
        """Add a step's reward at the last trainable token of its reply.

        A step without trainable tokens (an empty reply, one left out) passes its reward to the same agent's latest
        reply before it that has some, or, where none has, to its first one after it.

        Returns:
            Whether there was such a token so far; there is none where token ids are unknown.
        """
        best: tuple[int, Segment, Sampled] | None = None
        agent = self._agents.get(step)
        for index in reversed(self._recent):
            for sampled in reversed(self.segments[index].sampled):
                if sampled.step is None or sampled.step > step or not sampled.trained:
                    continue
                if agent is not None and self._agents[sampled.step] != agent:
                    continue
                if best is None or sampled.step > best[0]:
                    best = (sampled.step, self.segments[index], sampled)
                break
            if best is not None and best[0] == step:
                break
        if best is None:  # nothing up to here is trained
            own = [
                (sampled.step, segment, sampled)
                for segment in self.segments
                if segment.token_ids
                for sampled in segment.sampled
                if sampled.step is not None and sampled.trained and self._agents[sampled.step] == agent
            ]
            best = min(own, key=lambda found: found[0], default=None)
        if best is None:
            return False
        best[1].rewards[best[2].stop - 1] += float(reward)
        return True

    def leave_out(self, step: int) -> None:
        """Take the reply of a step, which was acted on, out of the loss; its reward goes where `assign_reward` says."""
        index = self.segment_of(step)
        if index is None:
            return
        segment = self.segments[index]
        for sampled in (reply for reply in segment.sampled if reply.step == step):
            sampled.masked = True
            segment.mask[sampled.start : sampled.stop] = [0] * (sampled.stop - sampled.start)

    def segment_of(self, step: int) -> int | None:
        """The segment that holds the reply of a step; None for an empty reply."""
        for index in reversed(self._recent):
            for sampled in reversed(self.segments[index].sampled):
                if sampled.step == step and not sampled.superseded:
                    return index
        return next((s.index for s in self.segments if any(r.step == step for r in s.sampled)), None)

    # -- finding the place -----------------------------------------------------------------------------------

    def _locate(self, new: Incoming) -> Place:
        """Follow the conversation through the tree, as far as it is known."""
        path: list[int] = []
        # What it shares with the agent's latest leaf takes a few tuple comparisons, not a step a message.
        own = (i for i in reversed(self._recent) if self._leaves[i].agent == new.agent and self._fits(i, new))
        latest = next(own, None)
        if latest is not None:
            path = self._leaves[latest].path[
                : common_prefix(self.segments[latest].messages, new.conversation)
            ]
        path = self._tree.follow(path, new.conversation)
        ends = (self._open_leaf(node, new) for node in reversed(path) if node in self._tree.open_at)
        return Place(path, next((end for end in ends if end is not None), None))

    def _open_leaf(self, node: int, new: Incoming) -> int | None:
        """The segment that ends at `node`: of the same agent if there is one, then the one extended last."""
        ends = [index for index in self._tree.open_at[node] if self._fits(index, new)]
        if len(ends) > 1:
            rank = {index: position for position, index in enumerate(self._recent)}
            ends.sort(key=lambda index: (self._leaves[index].agent == new.agent, rank[index]))
        return ends[-1] if ends else None

    def _fits(self, index: int, new: Incoming) -> bool:
        """A reply without ids cannot extend a token sequence, nor the other way round."""
        return self._leaves[index].has_ids == new.has_ids

    def _extend_leaf(self, new: Incoming, place: Place) -> int | None:
        """Append what the prompt adds to the matching leaf; None if there is none or its tokens differ."""
        index = place.leaf
        if index is None:
            return None
        kind: Literal["append", "realign"] = "append"
        if new.reply.prompt_ids is not None:
            held, prompt = self.segments[index].token_ids, new.reply.prompt_ids
            self._learn_end(index, new)
            if list(prompt[: len(held)]) == held:
                tail = len(held)
            else:
                kind = "realign"
                sampled = self.segments[index].sampled[-1]
                start = tail_start(held, sampled.start, self._leaves[index].prompt_ids, prompt, self._ends)
                if start is None:
                    return None
                tail = start
            self._continue(index, new.now)
            _extend(self.segments[index], prompt[tail:], mask=0)
        else:
            self._continue(index, new.now)
        self.events.append(Event(kind, new.now, {"segment": index}))
        return index

    def _learn_end(self, index: int, new: Incoming) -> None:
        """A reply that came to its end usually sampled the token that ends a turn."""
        segment, leaf = self.segments[index], self._leaves[index]
        last = segment.sampled[-1]
        sampled = segment.token_ids[last.start : last.stop]
        if not self._learn or not sampled or last.finish_reason == "length" or sampled[-1] in self._ends:
            return
        renders = ((leaf.prompt_ids, len(leaf.prompt)), (new.reply.prompt_ids or (), len(new.conversation)))
        end = learn_end_of_turn(sampled, renders)
        if end is not None:
            self._ends.add(end)

    # -- beginning a segment ---------------------------------------------------------------------------------

    def _cause(self, new: Incoming, place: Place) -> Cause:
        """Why a segment begins here."""
        if new.cause == "delegation" and self.segments:
            return "delegation"
        if all(s.agent != new.agent or s.cause == "retry" for s in self.segments):
            return "start"
        if new.cause is not None:
            return new.cause
        if self.forks == "error":
            raise SegmentError(
                f"expected reply {new.now} of {new.agent!r} to extend a known conversation, or a cause for "
                f"its rewrite; only the first {place.depth} of its {len(new.conversation)} messages are known"
            )
        return "fork"

    def _begin(self, new: Incoming, place: Place, cause: Cause) -> int:
        """Begin a segment with this prompt."""
        parent, depth = (None, 0) if cause == "start" else self._parent(new, place, cause)
        segment = Segment(len(self.segments), new.agent, parent, cause, new.conversation)
        _extend(segment, new.reply.prompt_ids or (), mask=0)
        if parent is not None:
            before = self.segments[parent]
            segment.copied_messages = depth
            segment.copied_tokens = common_prefix(before.token_ids, segment.token_ids)
            if cause in ("compaction", "fork"):
                segment.dropped = left_out(before.messages[depth:], new.conversation[depth:])
        self.segments.append(segment)
        self._leaves.append(Leaf(new.agent, new.has_ids, place.path))
        if cause not in ("start", "retry"):
            data = {"segment": segment.index, "parent": parent, "dropped": len(segment.dropped)}
            self.events.append(Event(cause, new.now, data))
        return segment.index

    def _parent(self, new: Incoming, place: Place, cause: Cause) -> tuple[int | None, int]:
        """The segment with the longest common prefix, and its length in messages.

        Ties go to the same agent, then to the segment extended last.
        """
        if cause == "delegation" and new.parent is not None:
            return new.parent, common_prefix(self.segments[new.parent].messages, new.conversation)
        newest_first = list(reversed(self._recent))
        for depth in range(place.depth, 0, -1):
            node = place.path[depth - 1]
            sharing = [i for i in newest_first if self._leaves[i].path[depth - 1 : depth] == [node]]
            own = [i for i in sharing if self._leaves[i].agent == new.agent]
            if sharing:
                return (own or sharing)[0], depth
        # Nothing in common: an announced rewrite still follows what was extended last.
        own = [i for i in newest_first if cause == "delegation" or self._leaves[i].agent == new.agent]
        return (own[0] if own and cause in ("compaction", "delegation") else None), 0

    # -- adding the reply ------------------------------------------------------------------------------------

    def _append_reply(self, index: int, new: Incoming) -> None:
        """Put the reply at the end of a segment that holds its prompt."""
        segment, leaf, reply = self.segments[index], self._leaves[index], new.reply
        start = len(segment.token_ids)
        _extend(segment, reply.sampled_ids or (), mask=1, logprobs=reply.logprobs)
        segment.messages = new.messages
        stop = len(segment.token_ids)
        segment.sampled.append(
            Sampled(
                len(new.messages) - 1,
                start,
                stop,
                new.step,
                reply.temperature,
                reply.finish_reason,
                policy_version=reply.policy_version,
            )
        )
        leaf.prompt, leaf.prompt_ids = new.conversation, reply.prompt_ids or ()
        if new.accepted is False:
            self._supersede(index, new.now)  # and it stays out of the tree: nothing continues it
        else:
            self._move_leaf(index, new)

    def _move_leaf(self, index: int, new: Incoming) -> None:
        """Bring the tree up to date with a segment that was extended."""
        leaf, tree = self._leaves[index], self._tree
        if leaf.path:
            tree.close(leaf.path[-1], index)
        del leaf.path[len(new.messages) - 1 :]  # the reply replaces a message it continues, or a retried one
        for message in new.messages[len(leaf.path) :]:
            leaf.path.append(tree.child(leaf.path[-1] if leaf.path else ROOT, message))
        for other in list(tree.open_at.get(leaf.path[-1], ())):
            if self._leaves[other].superseded is not None:
                tree.close(leaf.path[-1], other)  # what follows this text from now on follows this reply
        tree.open(leaf.path[-1], index)
        self._recent.pop(index, None)
        self._recent[index] = None

        last = len(new.conversation) - 1
        above = leaf.path[last - 1] if last > 0 else ROOT
        leaf.prompt_node = tree.child(above, new.conversation[last]) if new.conversation else ROOT
        leaf.superseded = None
        if new.accepted is None:
            self._unsure[leaf.prompt_node, leaf.agent] = index

    # -- replies that were not acted on ----------------------------------------------------------------------

    def _retried(self, new: Incoming, place: Place) -> int | None:
        """The segment whose last reply this one is another try at."""
        if place.depth < len(new.conversation):
            return None
        index = self._unsure.get((place.node, new.agent))
        return index if index is not None and self._fits(index, new) else None

    def _set_aside(self, index: int, now: int) -> int:
        """Move the last reply of a segment into a segment of its own; another takes its place."""
        segment, leaf = self.segments[index], self._leaves[index]
        last = segment.sampled.pop()
        side = Segment(len(self.segments), segment.agent, index, "retry", segment.messages, [last])
        _extend(side, segment.token_ids, mask=0)
        side.logprobs = [0.0] * last.start + segment.logprobs[last.start :] if segment.logprobs else []
        side.rewards[last.start :] = segment.rewards[last.start :]
        side.copied_messages, side.copied_tokens = len(leaf.path) - 1, last.start
        path = list(leaf.path)
        self.segments.append(side)
        self._leaves.append(
            Leaf(leaf.agent, leaf.has_ids, path, leaf.prompt, leaf.prompt_node, leaf.prompt_ids)
        )
        self._tree.close(path[-1], index)
        self._tree.open(path[-1], side.index)
        self._recent[side.index] = None
        self._supersede(side.index, now)

        del segment.token_ids[last.start :], segment.mask[last.start :]
        del segment.logprobs[last.start :], segment.rewards[last.start :]
        segment.messages = leaf.prompt
        return index

    def _supersede(self, index: int, now: int) -> None:
        """Take the last reply of a segment out of training."""
        segment = self.segments[index]
        last = segment.sampled[-1]
        last.superseded = True
        segment.mask[last.start : last.stop] = [0] * (last.stop - last.start)
        event = Event("superseded", now, {"segment": index})
        self._leaves[index].superseded = event
        self.events.append(event)

    def _continue(self, index: int, now: int) -> None:
        """Something continues this segment: its last reply was acted on, whatever it looked like before."""
        segment, leaf = self.segments[index], self._leaves[index]
        key = (leaf.prompt_node, leaf.agent)
        rival = self._unsure.get(key)  # the last reply to the same prompt, if nothing has continued that yet
        if leaf.superseded is None:
            if rival == index:
                del self._unsure[key]
            return
        if segment.cause == "retry":
            if self.forks == "error":
                raise SegmentError(f"two replies to one prompt are continued, the second in segment {index}")
            segment.cause = "fork"
            self.events.append(Event("fork", now, {"segment": index, "parent": segment.parent, "dropped": 0}))
        last = segment.sampled[-1]
        last.superseded = False
        segment.mask[last.start : last.stop] = [1] * (last.stop - last.start)
        self.events.remove(leaf.superseded)
        leaf.superseded = None
        if rival is not None:
            del self._unsure[key]
            self._supersede(rival, now)


def _extend(
    segment: Segment, ids: Sequence[int], *, mask: int, logprobs: Sequence[float] | None = None
) -> None:
    """Append tokens; log-probs of the segment are known as long as those of all its sampled tokens are."""
    known = len(segment.logprobs) == len(segment.token_ids)
    segment.token_ids.extend(ids)
    segment.mask.extend([mask] * len(ids))
    segment.rewards.extend([0.0] * len(ids))
    if known and mask == 0:
        segment.logprobs.extend([0.0] * len(ids))
    elif known and logprobs is not None:
        segment.logprobs.extend(logprobs)
    else:
        segment.logprobs.clear()
