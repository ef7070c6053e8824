"""The environment without a browser: tools, bounds, ends, and what of a verdict reaches the reward."""

from __future__ import annotations

import json

import pytest

from agentgym.envs.web import PageEnv, WebEnv, make
from agentgym.envs.web.env import MOST_BYTES, MOST_FILES
from agentgym.envs.web.looking import actions_of, describe
from agentgym.envs.web.records import bundled_tasks, to_task
from agentgym.errors import TaskError, ToolError, UsageError
from agentgym.tasks import FrozenDict, TaskSet
from agentgym.tools import ToolCall


def call(env: WebEnv, name: str, **arguments: object) -> str:
    return env.protocol.render_call(ToolCall(name, FrozenDict(arguments)))


def judged(env):
    """What the gold page is said to be worth."""
    env.reset(seed=1)
    env.step(env.gold())
    *_, info = env.step(env.gold())
    return info["verdict"]


@pytest.fixture
def env(stand_in):
    made = WebEnv()
    made.reset(seed=1)
    return made


class TestTools:
    def test_files_are_written_edited_and_read(self, env):
        assert env.write_file("index.html", "<p>one\n<p>two") == "Wrote index.html, 2 lines."
        assert env.edit_file("index.html", "two", "three") == "Edited index.html at line 2."
        assert env.read_file("index.html") == "    1\t<p>one\n    2\t<p>three"
        assert env.read_file("index.html", start=2) == "    2\t<p>three"
        env.write_file("js/app.js", "1")
        assert env.files == {"index.html": "<p>one\n<p>three", "js/app.js": "1"}

    def test_lines_are_numbered_as_edits_name_them(self, env):
        said = env.write_file("a.js", "one\x0c\u2028\r\ntwo\n")
        assert said == "Wrote a.js, 2 lines."
        assert env.read_file("a.js") == "    1\tone\x0c\u2028\n    2\ttwo"
        assert env.edit_file("a.js", "two", "2") == "Edited a.js at line 2."

    def test_lines_that_are_not_there(self, env):
        env.write_file("a.txt", "")
        assert env.read_file("a.txt", start=-1) == "a.txt is empty."
        env.write_file("a.txt", "1\n2\n3")
        for start in (-1, 0, 4):
            with pytest.raises(ToolError, match="has 3 lines"):
                env.read_file("a.txt", start=start)
        assert env.read_file("a.txt", start=2, end=1) == "... 2 more lines"
        assert env.read_file("a.txt", start=3, end=99) == "    3\t3"

    @pytest.mark.parametrize(
        "path", ["", "/etc/passwd", "../x.html", "a/../b", "a//b", ".git/x", "a b.html", "x" * 201, "a\n"]
    )
    def test_odd_paths_are_refused(self, env, path):
        with pytest.raises(ToolError, match="relative path"):
            env.write_file(path, "x")

    @pytest.mark.parametrize(("old", "times"), [("", 0), ("three", 0), ("o", 2)])
    def test_an_edit_wants_one_place(self, env, old, times):
        env.write_file("index.html", "one two")
        with pytest.raises(ToolError, match=f"occurs {times} times"):
            env.edit_file("index.html", old, "x")

    def test_a_missing_file_is_told_with_those_there_are(self, env):
        with pytest.raises(ToolError, match="files: none"):
            env.read_file("index.html")
        with pytest.raises(ToolError, match=r"no file 'index.html'"):
            env.preview()
        env.write_file("a.css", "")
        with pytest.raises(ToolError, match=r"files: a\.css"):
            env.edit_file("b.css", "x", "y")

    def test_sizes_are_bounded(self, env):
        env.write_file("a.txt", "x" * (MOST_BYTES - 4))
        env.write_file("a.txt", "x" * (MOST_BYTES - 4))  # in place of the old one
        with pytest.raises(ToolError, match="bytes together"):
            env.write_file("b.txt", "ääx")  # five bytes
        env.write_file("b.txt", "ää")
        for number in range(MOST_FILES - 2):
            env.write_file(f"{number}.txt", "")
        with pytest.raises(ToolError, match="files already"):
            env.write_file("one-more.txt", "")

    def test_long_answers_are_cut(self, stand_in):
        env = WebEnv(output_chars=100)
        env.reset(seed=1)
        env.write_file("a.txt", "x" * 300)
        assert env.read_file("a.txt").endswith("[... 206 more characters]")  # six before the text

    def test_a_preview_takes_actions_and_no_asserts(self):
        (action,) = actions_of([{"op": "click", "target": {"css": "button"}}])
        assert (action.op, action.target.css) == ("click", "button")
        with pytest.raises(ToolError, match=r"actions\[0\].*unknown op 'clik'"):
            actions_of([{"op": "clik"}])
        with pytest.raises(ToolError, match="no asserts"):
            actions_of([{"op": "assert", "item": "preview", "kind": "title"}])
        with pytest.raises(ToolError, match="at most 20"):
            actions_of([{"op": "reload"}] * 21)

    @pytest.mark.parametrize("size", [(0, 800), (1280, 10**6)])
    def test_a_preview_has_a_window_of_some_size(self, env, size):
        env.write_file("index.html", "x")
        with pytest.raises(ToolError, match="200 to 4000"):
            env.preview(width=size[0], height=size[1])


def test_what_a_preview_says():
    from agentgym.verifiers.browser import Preview

    shown = Preview("- button", "Go", ("log: hi",), ("oops",), ("https://a.test/",), ("click: no",))
    text = describe(shown)
    assert text.split("\n\n") == [
        "Did not work:\n- click: no",
        "Refused requests:\n- https://a.test/",
        "Console:\n- oops\n- log: hi",
        "Accessibility tree:\n- button",
        "Text:\nGo",
    ]
    assert describe(Preview()) == "Accessibility tree:\n(empty)\n\nText:\n(none)"


class TestEnds:
    def test_no_page_gets_nothing_without_a_browser(self, env, stand_in):
        _, reward, terminated, truncated, info = env.step(call(env, "submit"))
        assert (reward, terminated, truncated, info["resolved"]) == (0.0, True, False, False)
        assert stand_in.seen == []

    def test_the_page_is_judged_as_it_is_at_the_last_turn(self, stand_in):
        env = WebEnv(max_turns=2)
        env.reset(seed=1)
        env.step(call(env, "write_file", path="index.html", content="<p>ä"))
        _, reward, terminated, truncated, info = env.step("nothing")
        assert (reward, terminated, truncated, info["resolved"]) == (1.0, False, True, True)
        assert stand_in.seen[0][1] == {"index.html": "<p>ä".encode()}

    def test_asking_the_network_costs_everything_unless_said_otherwise(self, stand_in):
        stand_in.blocked = ("https://collect.test/", "https://page.test/logo.png")
        stand_in.outward = ("https://collect.test/",)
        for zero, expected, evidence in (
            (True, 0.0, {"network": "https://collect.test/"}),
            (False, 1.0, {}),
        ):
            verdict = judged(WebEnv(zero_on_network=zero))
            assert (verdict.score, verdict.passed) == (expected, bool(expected))
            assert verdict.evidence == evidence

    def test_a_file_of_its_own_that_is_not_there_is_no_network(self, stand_in):
        stand_in.blocked = ("https://page.test/logo.png",)
        assert judged(WebEnv()).score == 1.0

    def test_a_slow_machine_is_seen_in_the_evidence(self, stand_in):
        stand_in.deadline = True
        evidence = judged(WebEnv()).evidence
        assert list(evidence) == ["deadline"]
        assert evidence["deadline"].startswith("the time for the page ran out")

    def test_a_dead_browser_is_no_reward(self, stand_in):
        stand_in.dead = True
        env = WebEnv()
        env.reset(seed=1)
        env.step(env.gold())
        _, reward, terminated, truncated, info = env.step(env.gold())
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["infrastructure_error"] == "the browser died"
        assert "verdict" not in info

    def test_each_episode_has_words_of_its_own_that_its_seed_decides(self, stand_in):
        env = WebEnv()
        for seed in (1, None, 1):
            env.reset(seed=seed, options={"task": "kanban-0"})
            env.step(env.gold())
            env.step(env.gold())
        first, second, again = (seed for _, _, seed in stand_in.seen)
        assert first == again != second


class TestSingleShot:
    @pytest.fixture
    def shot(self, stand_in):
        env = make(max_turns=1)
        assert isinstance(env, PageEnv)
        env.reset(seed=1)
        return env

    @pytest.mark.parametrize(
        ("action", "page"),
        [
            ("Here:\n```html\n<p>a\n```\nDone.", "<p>a\n"),
            ("<p>whole", "<p>whole"),
            ("```html\n<p>first\n```\nor\n```html\n<p>second\n```", "<p>second\n"),
            ("```html\n<p>cut off", "<p>cut off"),
            ("```html\n<script>const a = `x```;</script>\n```", "<script>const a = `x```;</script>\n"),
        ],
    )
    def test_the_page_is_found(self, shot, stand_in, action, page):
        _, reward, terminated, _, _ = shot.step(action)
        assert (reward, terminated) == (1.0, True)
        assert stand_in.seen[0][1]["index.html"].decode() == page

    @pytest.mark.parametrize("action", ["", "I cannot.", "<" * (MOST_BYTES + 1)])
    def test_what_is_no_page_is_invalid(self, shot, stand_in, action):
        _, reward, terminated, truncated, info = shot.step(action)
        assert (reward, terminated, truncated, info["invalid_action"]) == (0.0, False, True, True)
        assert stand_in.seen == []

    def test_the_tools_are_not_offered(self, shot):
        assert shot.tools == ()
        assert "```html" in shot.system_prompt
        assert "write_file" not in shot.system_prompt


class TestTasks:
    def test_splits(self):
        assert [len(bundled_tasks().split(name)) for name in ("train", "dev", "test")] == [64, 8, 8]
        kinds = [
            {task.id.rpartition("-")[0] for task in bundled_tasks().split(name)}
            for name in ("train", "dev", "test")
        ]
        assert len(set.union(*kinds)) == sum(map(len, kinds))

    def test_files_of_the_format(self, tmp_path, stand_in):
        task = {
            "id": "mine",
            "prompt": "Say hello.",
            "items": [{"id": "F1", "category": "functionality", "text": "It says hello"}],
            "scenarios": [
                {
                    "name": "main",
                    "steps": [
                        {"op": "goto"},
                        {"op": "assert", "item": "F1", "kind": "page_text", "contains": "hello"},
                    ],
                }
            ],
        }
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(task), encoding="utf-8-sig")  # as some editors write it
        for source in (path, str(tmp_path)):
            env = WebEnv(tasks=source)
            assert env.reset(seed=0)[0] == "Say hello."
            env.step(call(env, "write_file", path="index.html", content="hello"))
            assert env.step(call(env, "submit"))[1] == 1.0
        with pytest.raises(UsageError, match="without a gold page"):
            env.gold()
        path.write_text(json.dumps(task | {"itmes": []}), encoding="utf-8")
        with pytest.raises(TaskError, match=r"mine\.json.*itmes"):
            WebEnv(tasks=path)

    def test_no_tasks_are_not_the_bundled_ones(self):
        assert len(WebEnv().task_set) == len(WebEnv(tasks=None).task_set) == 80
        for nothing in ([], TaskSet([])):
            with pytest.raises(UsageError, match="WebEnv has no tasks"):
                WebEnv(tasks=nothing)

    def test_a_class_may_bring_its_own(self):
        class Mine(WebEnv):
            tasks = bundled_tasks()[:1]

        assert [task.id for task in Mine().task_set] == [bundled_tasks()[0].id]
        assert len(Mine(tasks=bundled_tasks()[:2]).task_set) == 2

    @pytest.mark.parametrize(
        ("keywords", "said"),
        [
            ({"output_chars": -5}, "expected output_chars to be a whole number >= 1, got -5"),
            ({"output_chars": "x"}, "expected output_chars to be a whole number >= 1, got 'x'"),
            ({"zero_on_network": "no"}, "expected zero_on_network to be .*, got 'no'"),
        ],
    )
    def test_settings_that_make_no_sense(self, keywords, said):
        with pytest.raises(UsageError, match=said):
            WebEnv(**keywords)

    def test_other_tasks_are_refused(self, stand_in, tmp_path):
        with pytest.raises(TaskError, match="web task as JSON text"):
            WebEnv(tasks=[bundled_tasks()[0].__class__("x")]).reset(seed=0)
        with pytest.raises(TaskError, match="folder of them"):
            WebEnv(tasks=tmp_path)

    def test_secrets_are_nowhere_in_what_the_policy_reads(self, env):
        for task in bundled_tasks():
            shown = env.reset(options={"task": task.id})[0] + env.system_prompt
            assert not [secret for secret in env.secrets(task) if secret in shown]
        assert to_task(json.loads(task.data["task"])).prompt == task.prompt


def test_cheats_end_the_episode(env, stand_in):
    for name, actions in env.cheats().items():
        env.reset(seed=1)
        for action in actions:
            *_, terminated, _, _ = env.step(action)
        assert terminated, name
    pages = {files["index.html"] for _, files, _ in stand_in.seen}
    assert len(pages) == 6
