"""Reading calls out of actions: exact round trips, strictness, and hostile texts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core import AgentEnv, Task, Verdict, tool
from agentgym.errors import MissingDependency, UsageError
from agentgym.protocols import PROTOCOLS, Hermes, ParseError, make_protocol
from agentgym.tools import MAX_NESTING, ArgumentChecker, CallRecord, Tool, ToolCall, ToolResult
from tests.toys import Notes

CHECKER = ArgumentChecker(
    tuple(
        Tool(name, "", json.dumps({"type": "object", "properties": properties, "required": []}), name)
        for name, properties in {
            "bash": {"command": {"type": "string"}},
            "many": {
                "text": {"type": "string"},
                "maybe": {"type": ["string", "null"]},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "flag": {"type": "boolean"},
                "tree": {"type": "object"},
                "row": {"type": "array"},
            },
            "none": {},
        }.items()
    )
)

# Texts made of what breaks readers, with ordinary characters between.
PIECES = [
    "<tool_call>", "</tool_call>", "tool_call>", "<function=a>", "</function>", "```", "```bash", "\n", "\n\n", " ",
    "\t", "\r\n", "Action:", "Action: x\nAction Input: {}", "Action Input:", "{", "}", '"', "\\", "\\u003c", "<", ">",
    "&lt;", "null", "5", "true", "é", "中文", "🙂", "\u2028", "\x00", "x", "</tool_response>",
]  # fmt: skip
XML_TAGS = ["</parameter>", "<parameter=b>", "<parameter="]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4).filter(str.isprintable), max_size=8).map(
    "".join
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
many = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "maybe": st.none() | st.just("null") | texts,
        "count": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "tree": st.dictionaries(texts, values, max_size=3),
        "row": st.lists(values, max_size=3),
    },
).map(lambda arguments: ToolCall("many", arguments))
around = st.sampled_from(["", "I think so.\n", "中文 {\n\n", "Thought: a\n"])


def parse(protocol: str, action: str) -> list[ToolCall]:
    return make_protocol(protocol).parse(action, CHECKER)


def refused(protocol: str, action: str, said: str) -> str:
    with pytest.raises(ParseError, match=said) as caught:
        parse(protocol, action)
    assert "expected" in str(caught.value)
    return str(caught.value)


class TestRoundTrip:
    @pytest.mark.parametrize("protocol", ["hermes", "react"])
    @given(call=many, before=around)
    def test_json_protocols(self, protocol, call, before):
        assert parse(protocol, before + make_protocol(protocol).render_call(call)) == [call]

    @given(calls=st.lists(many, min_size=1, max_size=4), between=around)
    def test_hermes_several_in_order(self, calls, between):
        assert parse("hermes", between.join(Hermes().render_call(call) for call in calls)) == calls

    @given(calls=st.lists(many, min_size=1, max_size=3), between=around)
    def test_xml(self, calls, between):
        read = [  # where a tool takes a text or None, the text "null" is None
            ToolCall(
                "many", {k: None if (k, v) == ("maybe", "null") else v for k, v in call.arguments.items()}
            )
            for call in calls
        ]
        assert parse("xml", between.join(make_protocol("xml").render_call(call) for call in calls)) == read

    @given(command=texts)
    def test_bash(self, command):
        call = ToolCall("bash", {"command": command})
        protocol = make_protocol("bash")
        if any(line.rstrip() == "```" for line in command.split("\n")):
            with pytest.raises(UsageError, match="cannot write"):
                protocol.render_call(call)
        else:
            assert parse("bash", "Let me look.\n" + protocol.render_call(call)) == [call]

    @pytest.mark.parametrize("tag", XML_TAGS)
    def test_xml_refuses_to_write_what_it_could_not_read_back(self, tag):
        with pytest.raises(UsageError, match="'text'"):
            make_protocol("xml").render_call(ToolCall("many", {"text": f"a{tag}b"}))
        nested = ToolCall("many", {"row": [f"a{tag}b"]})  # JSON can escape the tag, a bare text cannot
        assert parse("xml", make_protocol("xml").render_call(nested)) == [nested]

    @pytest.mark.parametrize(
        "text", ["", "\n", "\n\n", "a\n", "\na", " a ", "\t", "</function>", "<function=b>"]
    )
    def test_xml_keeps_blank_space_and_function_tags(self, text):
        call = ToolCall("many", {"text": text})
        assert parse("xml", make_protocol("xml").render_call(call)) == [call]

    def test_closing_tag_inside_hermes_text(self):
        call = ToolCall("many", {"text": "</tool_call> tool_call> <tool_call>"})
        assert parse("hermes", Hermes().render_call(call)) == [call]


class TestHermes:
    CALL = '<tool_call>{"name": "none", "arguments": {}}</tool_call>'

    def test_reads_with_text_and_blank_space_around(self):
        inside = '{"name": "bash", "arguments": {"command": "ls"}}'
        action = f'Look: tool_call> {{"a": 1}}\n<tool_call>\n {inside} \n</tool_call> ok'
        assert parse("hermes", action) == [ToolCall("bash", {"command": "ls"})]

    def test_arguments_may_be_left_out(self):
        assert parse("hermes", '<tool_call>{"name": "none"}</tool_call>') == [ToolCall("none", {})]

    @pytest.mark.parametrize(
        ("action", "said"),
        [
            ("", "no tool call"),
            ("just text", "no tool call"),
            ('{"name": "none", "arguments": {}}', "no tool call"),
            ('<tool_call>{"name": "none", "arguments": {}}', "not closed"),
            (CALL + "<tool_call>", "not closed"),
            (CALL + "</tool_call>", "closed twice"),
            ("</tool_call>" + CALL, "closes nothing"),
            (f"<tool_call>{CALL}</tool_call>", "not closed"),
            ("<tool_call></tool_call>", "not valid JSON"),
            ("<tool_call>none()</tool_call>", "not valid JSON"),
            ("<tool_call>{'name': 'none'}</tool_call>", "not valid JSON"),
            ('<tool_call>{"name": "none",}</tool_call>', "not valid JSON"),
            ('<tool_call>{"name": "none"} and more</tool_call>', "text after it"),
            ('<tool_call>{"name": "none"}{"name": "none"}</tool_call>', "text after it"),
            ('<tool_call>["none"]</tool_call>', "no name"),
            ('<tool_call>{"arguments": {}}</tool_call>', "no name"),
            ('<tool_call>{"name": 5}</tool_call>', "no name"),
            ('<tool_call>{"name": "none", "arguments": []}</tool_call>', "only"),
            ('<tool_call>{"name": "none", "arguments": null}</tool_call>', "only"),
            ('<tool_call>{"name": "none", "arguments": "{}"}</tool_call>', "only"),
            ('<tool_call>{"name": "none", "args": {}}</tool_call>', "only"),
            ('<tool_call>{"name": "none", "arguments": {}, "id": 1}</tool_call>', "only"),
            ('<tool_call>{"name": "many", "arguments": {"ratio": NaN}}</tool_call>', "NaN is no number"),
            (
                '<tool_call>{"name": "many", "arguments": {"ratio": -Infinity}}</tool_call>',
                "-Infinity is no number",
            ),
            ('<tool_call>{"name": "many", "arguments": {"ratio": 1e999}}</tool_call>', "1e999 is no number"),
            ('<tool_call>{"name": "many", "arguments": {"text": "\\ud83d"}}</tool_call>', "surrogate"),
            (
                '<tool_call>{"name": "many", "arguments": {"count": ' + "1" * 5000 + "}}</tool_call>",
                "not valid JSON",
            ),
        ],
    )
    def test_strict(self, action, said):
        assert '<tool_call>{"name": TOOL, "arguments": {...}}</tool_call>' in refused("hermes", action, said)

    def test_whole_surrogate_pairs_are_text(self):
        action = '<tool_call>{"name": "many", "arguments": {"text": "\\ud83d\\ude42"}}</tool_call>'
        assert parse("hermes", action) == [ToolCall("many", {"text": "🙂"})]

    def test_arguments_cannot_be_changed(self):
        [call] = parse("hermes", '<tool_call>{"name": "many", "arguments": {"text": "a"}}</tool_call>')
        with pytest.raises(TypeError):
            call.arguments["text"] = "b"

    def test_repair_without_its_package_fails_when_made(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "json_repair", None)
        with pytest.raises(MissingDependency, match="pip install json-repair"):
            Hermes(repair=True)

    def test_repair_mends_and_still_checks(self, monkeypatch):
        mended = {"{'name': 'none'}": '{"name": "none"}', "garbage": '""', "deep": "[" * 99 + "]" * 99}
        monkeypatch.setitem(sys.modules, "json_repair", types.SimpleNamespace(repair_json=mended.__getitem__))
        protocol = Hermes(repair=True)
        assert protocol.parse("<tool_call>{'name': 'none'}</tool_call>", CHECKER) == [ToolCall("none", {})]
        for block in ("garbage", "deep"):
            with pytest.raises(ParseError):
                protocol.parse(f"<tool_call>{block}</tool_call>", CHECKER)

    def test_results(self):
        records = [CallRecord(ToolCall("a"), ToolResult("one")), CallRecord(ToolCall("b"), ToolResult("two"))]
        assert Hermes().render_results(records) == (
            "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
        )


class TestXml:
    def test_types_follow_the_tool(self):
        action = """Now:
<function=many>
<parameter=text>5</parameter>
<parameter=count> 5 </parameter>
<parameter=ratio>2.5</parameter>
<parameter=flag>true</parameter>
<parameter=tree>{"a": [1, null]}</parameter>
<parameter=maybe>null</parameter>
</function>"""
        expected = {
            "text": "5",
            "count": 5,
            "ratio": 2.5,
            "flag": True,
            "tree": {"a": [1, None]},
            "maybe": None,
        }
        assert parse("xml", action) == [ToolCall("many", expected)]

    @pytest.mark.parametrize("text", ["five", "NaN", "1" * 5000, "[" * 100_000, ""])
    def test_what_does_not_fit_stays_text_for_the_checker(self, text):
        [call] = parse("xml", f"<function=many><parameter=count>{text}</parameter></function>")
        assert call.arguments == {"count": text}
        assert "must be of type integer" in CHECKER.problem(call)

    def test_no_arguments(self):
        assert (
            parse("xml", "<function=none></function> <function=none>\n</function>")
            == [ToolCall("none", {})] * 2
        )

    @pytest.mark.parametrize(
        ("action", "said"),
        [
            ("", "no tool call"),
            ("text", "no tool call"),
            ("<function=none>", "not closed"),
            ("<function=none></function><function=none>", "not closed"),
            ("<function=none></function></function>", "closes nothing"),
            ("</function><function=none></function>", "closes nothing"),
            ("<function=></function>", "has no name"),
            ("<function=a b></function>", "has no name"),
            ("<function", "no tool call"),
            ("<function=none>text</function>", "unexpected text"),
            ("<function=many><parameter=text>a</parameter>text</function>", "unexpected text"),
            ("<function=many><parameter=text>a</function>", "not closed"),
            ("<function=many><parameter=text>a<parameter=count>5</parameter></function>", "not closed"),
            (
                "<function=many><parameter=text>a</function><function=many><parameter=text>b</parameter></function>",
                "not",
            ),
            ("<function=many><parameter=text>a</parameter><parameter=text>b</parameter></function>", "twice"),
        ],
    )
    def test_strict(self, action, said):
        assert "<function=TOOL><parameter=NAME>value</parameter></function>" in refused("xml", action, said)


class TestBash:
    def test_reads_the_one_block_among_others(self):
        action = (
            "First:\n```python\nprint(1)\n```\nthen `ls` or ```ls```\n```bash  \ncd a\n\nls\n```  \nDone."
        )
        assert parse("bash", action) == [ToolCall("bash", {"command": "cd a\n\nls"})]

    @pytest.mark.parametrize(
        ("action", "said"),
        [
            ("", "found 0"),
            ("ls", "found 0"),
            ("```\nls\n```", "found 0"),
            ("```sh\nls\n```", "found 0"),
            ("text ```bash\nls\n```", "not closed"),
            ("```bash\nls", "not closed"),
            ("```bash\nls\n```\n```bash\npwd\n```", "found 2"),
            ("```bash\nls\n```\n```", "not closed"),
            ("```bash\ncat > README.md <<'EOF'\n```bash\nls\n```\nEOF\n```", "not closed"),
        ],
    )
    def test_strict(self, action, said):
        refused("bash", action, said)

    def test_needs_the_tool(self):
        with pytest.raises(UsageError, match="needs a tool named bash"):
            Notes(protocol="bash")

    def test_writes_only_bash(self):
        with pytest.raises(UsageError, match="can only write"):
            make_protocol("bash").render_call(ToolCall("read", {"name": "a"}))


class TestReAct:
    def test_reads(self):
        action = 'Thought: I look.\nAction: bash\nAction Input: {"command":\n "ls"}\n\n'
        assert parse("react", action) == [ToolCall("bash", {"command": "ls"})]

    @pytest.mark.parametrize(
        ("action", "said"),
        [
            ("", "found 0 lines"),
            ("Thought: only", "found 0 lines"),
            ("Action: bash", "found 1 lines"),
            ("Action: \nAction Input: {}", "found 1 lines"),
            ("Action: a b\nAction Input: {}", "found 1 lines"),
            ("Action: none\nAction Input: {}\nAction: none\nAction Input: {}", "found 2 lines"),
            ("Action: none\nAction: bash\nAction Input: {}", "found 2 lines"),
            ("Action: none\nAction Input:", "not valid JSON"),
            ("Action: none\nAction Input: ls", "not valid JSON"),
            ("Action: none\nAction Input: {}\nObservation: done", "text after it"),
            ("Action: none\nAction Input: []", "no JSON object"),
            ('Action: many\nAction Input: {"ratio": Infinity}', "Infinity is no number"),
        ],
    )
    def test_strict(self, action, said):
        refused("react", action, said)


class TestHostile:
    HOSTILE = {
        "hermes": ["<tool_call>", "</tool_call>", "<tool_call></tool_call>", "<tool_call>{", '<tool_call>"', "<"],
        "xml": ["<function=a>", "<function=", "<function=a", "<function=a>\n\n", "<function=a><parameter=b>",
                "</function>", "<parameter=b>", "<function=a></function>", "<function=a> "],
        "bash": ["```bash\n", "```", "```\n", "```bash", "\n```bash \t", "` "],
        "react": ["Action: a\n", "Action: ", "Action: a\n\nAction Input: ", "Action: a\nAction Input: {", "\n",
                  "Action:\t"],
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("protocol", "piece"), [(p, piece) for p, all_ in HOSTILE.items() for piece in all_]
    )
    def test_repetition_takes_linear_time(self, protocol, piece):
        closing = {"hermes": "</tool_call>", "xml": "</function>", "bash": "\n```", "react": " "}[protocol]
        start = time.process_time()
        for action in (
            piece * 20_000,
            closing * 10_000 + piece * 20_000,
            piece + " " * 500_000,
            piece + "\n" * 500_000,
        ):
            try:
                calls = parse(protocol, action)
            except ParseError:
                continue
            assert len(calls) <= 20_000
        assert time.process_time() - start < 10  # a hang guard; quadratic readers need minutes

    @pytest.mark.parametrize("protocol", ["hermes", "xml", "react"])
    @pytest.mark.parametrize("depth", [MAX_NESTING + 1, 900, 950, 975, 990, 1000, 100_000])
    @pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
    def test_deep_nesting_is_answered(self, protocol, depth, opening, closing):
        for value in (opening * depth + "1" + closing * depth, opening * depth):
            action = {
                "hermes": '<tool_call>{"name": "many", "arguments": {"row": ' + value + "}}</tool_call>",
                "xml": f"<function=many><parameter=row>{value}</parameter></function>",
                "react": 'Action: many\nAction Input: {"row": ' + value + "}",
            }[protocol]
            try:
                [call] = parse(protocol, action)
                answer = CHECKER.problem(call)
            except ParseError as error:
                answer = str(error)
            assert (
                "must be of type array" in answer
                or "nested too deeply" in answer
                or "not valid JSON" in answer
            )
            assert len(answer) < 500

    def test_moderate_nesting_is_read(self):
        value = [[[{"a": [[]]}]]]
        call = ToolCall("many", {"row": value, "text": "[" * 1000})  # brackets in a text are no nesting
        assert parse("hermes", Hermes().render_call(call)) == [call]
        flat = ToolCall("many", {"row": [[]] * 1000})
        assert parse("hermes", Hermes().render_call(flat)) == [flat]

    @pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
    def test_a_megabyte_is_read(self, protocol):
        text = 'Zeile 中🙂 <b> \\ " `x`\n' * 40_000
        call = ToolCall("bash", {"command": text})
        start = time.process_time()
        assert parse(protocol, make_protocol(protocol).render_call(call)) == [call]
        assert time.process_time() - start < 10

    @given(
        action=st.lists(st.sampled_from([*PIECES, *XML_TAGS, '{"name": "none"}', "<function=none>"])).map(
            "".join
        )
    )
    @pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
    def test_any_text_is_read_or_refused(self, protocol, action):
        try:
            calls = parse(protocol, action)
        except ParseError:
            return
        assert calls
        assert all(isinstance(call, ToolCall) for call in calls)


def test_unknown_protocol_names_the_nearest():
    with pytest.raises(UsageError, match="'hermes'"):
        make_protocol("hermse")


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_description_says_how_to_call_and_what(protocol):
    tools = (Tool("bash", "Run it.", '{"type": "object", "properties": {}, "required": []}', "bash"),)
    text = make_protocol(protocol).describe(tools)
    assert {"hermes": "</tool_call>", "xml": "</function>", "bash": "```bash", "react": "Action Input:"}[
        protocol
    ] in text
    assert "Run it." in text or protocol == "bash"


def test_the_module_needs_no_json_repair():
    code = "import sys; sys.modules['json_repair'] = None; import agentgym.protocols"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_protocol_words_its_own_answer_to_an_invalid_action():
    class Curt(Hermes):
        def render_invalid(self, problem):
            return f"?? {problem.split(';')[0]}"

    class Adder(AgentEnv):
        tasks = (Task("only"),)

        def begin(self, task):
            return "Add."

        @tool
        def add(self, number: int) -> str:
            """Add a number.

            Args:
                number: any.
            """
            return str(number)

        def verify(self, episode):
            return Verdict(0.0)

    for protocol, answer in ((Hermes(), "Invalid action: no tool call"), (Curt(), "?? no tool call")):
        env = Adder(protocol=protocol)
        env.reset(seed=0)
        observation, *_, info = env.step("nothing")
        assert observation.startswith(answer)
        assert info["invalid_action"]
