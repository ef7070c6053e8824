"""The two spaces as spaces; `test_vectors` has them in vector environments."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete, Tuple
from gymnasium.spaces.utils import flatdim, is_space_dtype_shape_equiv
from gymnasium.utils.env_checker import check_env
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

from agentgym import Conversation, Message, UnicodeText
from tests.toys import ChatEnv, DictTextEnv, TextEnv

SPACES = [UnicodeText(), UnicodeText(7), Conversation(), Conversation(3, 9)]


class TestUnicodeText:
    @pytest.mark.parametrize(
        "text", ["", "a", "hello world", "\n\t\x00", "é", "中文字", "🙂👩‍👩‍👧", "\u2028\ufeff", "a" * 100_000]
    )
    def test_any_text_is_contained(self, text):
        assert text in UnicodeText()

    @pytest.mark.parametrize(
        "thing", [None, 5, b"bytes", ["a"], ("a",), np.array("a"), "\ud800", "a\udfff b"]
    )
    def test_others_and_lone_surrogates_are_not(self, thing):
        assert thing not in UnicodeText()

    def test_numpy_text_is_text(self):
        assert np.str_("a") in UnicodeText()

    def test_length_counts_characters(self):
        space = UnicodeText(3)
        assert "🙂中é" in space
        assert "abcd" not in space
        assert "" in UnicodeText(0)
        assert "a" not in UnicodeText(0)
        with pytest.raises(ValueError, match="max_length >= 0"):
            UnicodeText(-1)

    @given(st.text(max_size=40))
    def test_hypothesis_texts(self, text):  # it draws no surrogates
        assert text in UnicodeText(40)

    def test_bounds(self):
        assert UnicodeText(5).sample() is not None
        assert {len(UnicodeText(0, seed=s).sample()) for s in range(5)} == {0}
        assert max(len(UnicodeText(2, seed=s).sample()) for s in range(50)) == 2

    def test_samples_show_more_than_ascii_and_the_empty_text(self):
        space = UnicodeText(seed=0)
        samples = [space.sample() for _ in range(300)]
        assert all(type(sample) is str and sample in space for sample in samples)
        assert any(not sample.isascii() for sample in samples)
        assert "" in samples


class TestConversation:
    def test_contained(self):
        space = Conversation()
        assert () in space
        assert (Message("user", "你好"), Message("assistant", "")) in space

    @pytest.mark.parametrize(
        "thing",
        [
            None,
            "text",
            [Message("user", "a")],
            ("a",),
            ({"role": "user", "content": "a"},),
            (Message("robot", "a"),),
            (Message("user", "\ud800"),),
            (Message("user", None),),
        ],
    )
    def test_not_contained(self, thing):
        assert thing not in Conversation()

    def test_bounds(self):
        space = Conversation(2, 3)
        message = Message("user", "abc")
        assert (message, message) in space
        assert (message,) * 3 not in space
        assert (Message("user", "abcd"),) not in space
        assert {Conversation(0, seed=s).sample() for s in range(5)} == {()}
        with pytest.raises(ValueError, match="bounds >= 0"):
            Conversation(-1)

    def test_samples(self):
        space = Conversation(seed=0)
        samples = [space.sample() for _ in range(100)]
        assert all(sample in space for sample in samples)
        assert () in samples
        assert len({len(sample) for sample in samples}) == 5  # 0 to 4
        assert all(type(m.role) is str and type(m.content) is str for sample in samples for m in sample)


@pytest.mark.parametrize("space", SPACES, ids=repr)
class TestBoth:
    def test_sampling_is_seeded(self, space):
        one, two = copy.deepcopy(space), copy.deepcopy(space)
        one.seed(5)
        two.seed(5)
        first = [one.sample() for _ in range(20)]
        assert first == [two.sample() for _ in range(20)]
        one.seed(5)
        assert first == [one.sample() for _ in range(20)]
        one.seed(6)
        assert first != [one.sample() for _ in range(20)]

    def test_the_global_generator_is_left_alone(self, space, global_rngs_untouched):
        space.sample()

    def test_masks_mean_nothing(self, space):
        for keywords in ({"mask": 1}, {"probability": 1}):
            with pytest.raises(ValueError, match="no mask"):
                space.sample(**keywords)

    @pytest.mark.parametrize(
        "again", [copy.deepcopy, copy.copy, lambda space: pickle.loads(pickle.dumps(space))]
    )
    def test_copies_are_equal_and_go_on_alike(self, space, again):
        space.seed(3)
        other = again(space)
        assert other == space
        if again is not copy.copy:  # which shares the generator
            assert [space.sample() for _ in range(5)] == [other.sample() for _ in range(5)]

    def test_repr_is_short_and_names_the_bounds(self, space):
        assert len(repr(space)) < 40
        assert eval(repr(space)) == space

    def test_no_array_form(self, space):
        assert not space.is_np_flattenable
        with pytest.raises((NotImplementedError, ValueError)):
            flatdim(space)

    def test_inside_other_spaces(self, space):
        outer = Dict(a=space, b=Tuple([space, Discrete(2)]))
        outer.seed(1)
        sample = outer.sample()
        assert sample in outer
        assert sample["a"] in space

    def test_batching(self, space):
        space.seed(1)
        batched = batch_space(space, 3)
        items = [space.sample() for _ in range(3)]
        joined = concatenate(space, items, create_empty_array(space, 3))
        assert joined == tuple(items)
        assert joined in batched


def test_equality_is_by_bounds():
    assert UnicodeText(5) == UnicodeText(5, seed=1)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != "UnicodeText(5)"
    assert Conversation(1, 2) == Conversation(1, 2)
    assert Conversation(1, 2) != Conversation(2, 1)
    assert Conversation() != UnicodeText()


def test_equivalence_for_vectors():
    assert is_space_dtype_shape_equiv(UnicodeText(5), UnicodeText(6))
    assert not is_space_dtype_shape_equiv(UnicodeText(), Conversation())


@pytest.mark.parametrize("make", [TextEnv, DictTextEnv, ChatEnv])
@pytest.mark.filterwarnings("error")
def test_check_env(make):
    check_env(make(), skip_render_check=True)
