"""What must hold whatever programs do: random trees of calls through the formats and the session, sockets left out.

Programs in all three formats send back what they were given in other words, some of it screened; they retry, lose
answers, ask side by side, delegate, compact, go back and start over. Every sampled token must lie in one segment,
trained exactly where the program acted on the reply.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.errors import InfrastructureError
from agentgym.gateway import Refusal, Screened
from agentgym.tools import ToolCall
from tests.gateway.toy import PROGRAMS, Program, ToyPolicy, decode, make_session


class World:
    """A session with its programs, and what is true of its replies."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.session = make_session(ToyPolicy(), seed=seed, screen=self.screen)
        self.replies = {}  # number of the call -> Reply
        self.agent_of = {}  # number of the call -> whose program asked
        self.accepted = set()
        self.main = self.rng.choice(PROGRAMS)
        self.count = 0
        self.programs = [self.program("main")]

    def screen(self, call, session):
        """Some calls are replaced: what the program holds is then not what was sampled."""
        return Screened(ToolCall("bash", {"command": "true"})) if self.rng.random() < 0.3 else None

    def program(self, name) -> Program:
        self.count += 1
        system = self.rng.choice(("one and the same", f"you are {name} {self.count}"))
        made = self.main(system, f"goal {self.count} of {name}", self.rng)
        made.name = name
        return made

    def begin(self, program, **body):
        pending, new = self.session.begin(program.form.read(program.body(**body)))
        assert new
        self.agent_of[pending.number] = program.name
        return pending

    def end(self, program, pending):
        reply = self.session.policy.act([pending.placed.conversation], seeds=[pending.seed])[0]
        self.replies[pending.number] = reply
        return program.form.body(pending.asked, self.session.complete(pending, reply))

    def take(self, program, pending, body, answer=None):
        """The program acts on a reply and goes on."""
        self.accepted.add(pending.number)
        calls = program.take(body, answer or (lambda i: f"answer {self.rng.random()}"))
        if not calls:
            program.say(f"go on {self.rng.random()}")

    def turn(self, program):
        pending = self.begin(program, tools=self.rng.random() < 0.9)
        self.take(program, pending, self.end(program, pending))

    # -- what programs do ------------------------------------------------------------------------------------

    def grow(self):
        self.turn(self.rng.choice(self.programs))

    def retry(self):
        """The same request two or three times; any of the answers is acted on."""
        program = self.rng.choice(self.programs)
        tried = [self.begin(program) for _ in range(self.rng.choice((2, 3)))]
        bodies = {}
        for i in self.rng.sample(range(len(tried)), len(tried)):
            bodies[i] = self.end(program, tried[i])
        i = self.rng.randrange(len(tried))
        self.take(program, tried[i], bodies[i])
        self.turn(program)  # until something continues it nobody knows which one it was

    def lose(self):
        """An answer that the program did not get, or got after all."""
        program = self.rng.choice(self.programs)
        pending = self.begin(program)
        body = self.end(program, pending)
        self.session.lose(pending, "gone")
        if self.rng.random() < 0.5:
            self.take(program, pending, body)
            self.turn(program)
        else:
            program.say(f"still there? {self.rng.random()}")

    def fail(self):
        program = self.rng.choice(self.programs)
        refusal = self.session.fail(self.begin(program), InfrastructureError("down"))
        assert isinstance(refusal, Refusal)

    def delegate(self):
        """A program of its own; its report is the parent's to read."""
        child = self.program(f"child {self.count}")
        for _ in range(self.rng.choice((1, 2))):
            self.turn(child)
        if self.rng.random() < 0.5:
            self.programs.append(child)
        else:
            self.rng.choice(self.programs).say(f"it says: {child.rows[-1]}")

    def compact(self):
        """A summary is asked for, and the history is rewritten around it; the goal may be gone."""
        program = self.rng.choice(self.programs)
        asking = program.fork()
        asking.name = program.name
        asking.say("sum it up")
        pending = self.begin(asking, tools=False)
        summary = program.text(self.end(asking, pending))
        self.accepted.add(pending.number)
        del program.rows[self.rng.choice((0, 1)) :]
        program.say(f"what was: {summary}")
        self.turn(program)

    def go_back(self):
        program = self.rng.choice(self.programs)
        del program.rows[1:]
        program.say(f"otherwise {self.rng.random()}")

    def side_by_side(self):
        """Calls of several programs at once, answered in any order."""
        some = self.rng.sample(self.programs, self.rng.randint(1, len(self.programs)))
        begun = [(program, self.begin(program)) for program in some]
        self.rng.shuffle(begun)
        for program, pending in begun:
            self.take(program, pending, self.end(program, pending))


MOVES = ("grow", "grow", "grow", "retry", "lose", "fail", "delegate", "compact", "go_back", "side_by_side")


def check(world):
    trajectory = world.session.finish(reward=1.0)
    numbers = sorted(world.replies)
    assert [step.action for step in trajectory.steps] == [world.replies[n].text for n in numbers]
    seen = []
    for segment in trajectory.segments:
        assert decode(segment.token_ids) == [(m.role, m.content) for m in segment.messages]
        mask, logprobs = [0] * len(segment.token_ids), [0.0] * len(segment.token_ids)
        for place in segment.sampled:
            number = numbers[place.step]
            reply = world.replies[number]
            assert tuple(segment.token_ids[place.start : place.stop]) == reply.sampled_ids
            seen.append(number)
            logprobs[place.start : place.stop] = reply.logprobs
            if number in world.accepted:
                mask[place.start : place.stop] = [1] * len(reply.sampled_ids)
        assert segment.mask == mask
        assert segment.logprobs == logprobs
    assert sorted(seen) == numbers
    names = {(world.agent_of[n], trajectory.steps[i].agent) for i, n in enumerate(numbers)}
    assert len(names) == len({asked for asked, _ in names}) == len({agent for _, agent in names})
    rewards = [r for segment in trajectory.segments for r in segment.rewards if r]
    # A failure that no later call has made good says nothing about the policy.
    assert (trajectory.reward, rewards) == ((None, []) if world.session.failure else (1.0, [1.0]))


def play(seed, moves):
    world = World(seed)
    world.grow()
    for _ in range(moves):
        getattr(world, world.rng.choice(MOVES))()
    check(world)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_every_accepted_token_is_trained_once_and_no_other(seed, moves):
    play(seed, moves)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(8, 20))
def test_the_same_in_long_histories(seed, moves):
    play(seed, moves)
