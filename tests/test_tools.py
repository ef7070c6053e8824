"""From a method to what the policy is told, and from what it wrote to a complaint it can act on."""

from __future__ import annotations

import json
from typing import Any, List, Literal, Optional  # noqa: UP035  # the old spellings are input too

import pytest

from agentgym import AgentEnv, ToolCall, ToolResult, tool
from agentgym.tools import ArgumentChecker, CallRecord, Tool, read_json, tools_of


class Desk:
    """One tool of every kind."""

    @tool
    def search(self, query: str, limit: int = 5, mode: Literal["fast", "full"] = "fast") -> str:
        """Search the shelf
        for a book.

        More that the policy is not told.

        Args:
            query: what to look for; may go
                over lines: like this.
            limit (int): how many.

        Returns:
            Titles.
        """
        return ""

    @tool
    def every(
        self,
        ratio: float,
        flag: bool,
        rows: list[int],
        grid: list[list[float]],
        tree: dict[str, int],
        bare: list,
        old: List[str],  # noqa: UP006
        maybe: str | None = None,
        also: Optional[int] = None,  # noqa: UP045
        choice: Literal["a", "b"] | None = None,
    ) -> str:
        return ""

    @tool
    def nothing(self) -> str:
        """No arguments."""
        return ""

    def plain(self) -> str:
        """No tool."""
        return ""


def schema(owner: type, name: str) -> dict[str, Any]:
    return json.loads(next(t for t in tools_of(owner) if t.name == name).schema)


class TestDerivation:
    def test_names_in_order_of_definition(self):
        assert [t.name for t in tools_of(Desk)] == ["search", "every", "nothing"]

    def test_schema_and_docstring(self):
        found = tools_of(Desk)[0]
        assert (found.description, found.method) == ("Search the shelf for a book.", "search")
        assert schema(Desk, "search") == {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "what to look for; may go over lines: like this."},
                "limit": {"type": "integer", "description": "how many.", "default": 5},
                "mode": {"type": "string", "enum": ["fast", "full"], "default": "fast"},
            },
            "required": ["query"],
            "additionalProperties": False,
        }

    def test_every_type(self):
        found = schema(Desk, "every")
        assert found["properties"] == {
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "rows": {"type": "array", "items": {"type": "integer"}},
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "tree": {"type": "object"},
            "bare": {"type": "array"},
            "old": {"type": "array", "items": {"type": "string"}},
            "maybe": {"type": ["string", "null"], "default": None},
            "also": {"type": ["integer", "null"], "default": None},
            "choice": {"type": ["string", "null"], "enum": ["a", "b", None], "default": None},
        }
        assert found["required"] == ["ratio", "flag", "rows", "grid", "tree", "bare", "old"]

    def test_schemas_are_schemas(self):
        jsonschema = pytest.importorskip("jsonschema")
        for found in tools_of(Desk):
            jsonschema.Draft202012Validator.check_schema(json.loads(found.schema))
        jsonschema.validate(None, schema(Desk, "every")["properties"]["choice"])

    def test_no_docstring_is_no_description(self):
        assert tools_of(Desk)[1].description == ""

    def test_openai_form(self):
        assert tools_of(Desk)[2].to_openai() == {
            "type": "function",
            "function": {
                "name": "nothing",
                "description": "No arguments.",
                "parameters": {
                    "type": "object",
                    "properties": {},
                    "required": [],
                    "additionalProperties": False,
                },
            },
        }

    def test_override_without_the_mark_withdraws(self):
        class Quiet(Desk):
            def search(self) -> str:
                return ""

        assert [t.name for t in tools_of(Quiet)] == ["every", "nothing"]
        assert [t.name for t in tools_of(Desk)] == ["search", "every", "nothing"]

    def test_override_with_the_mark_replaces_in_place(self):
        class Loud(Desk):
            @tool
            def search(self, word: str) -> str:
                """Shout."""
                return ""

            @tool
            def more(self) -> str:
                """More."""
                return ""

        assert [(t.name, t.description) for t in tools_of(Loud)] == [
            ("search", "Shout."), ("every", ""), ("nothing", "No arguments."), ("more", "More.")
        ]  # fmt: skip
        assert list(schema(Loud, "search")["properties"]) == ["word"]

    def test_a_tool_that_only_reads_is_marked(self):
        class Reader(AgentEnv):
            @tool(read_only=True)
            def view(self) -> str:
                """Look."""
                return ""

            @tool
            def put(self) -> str:
                """Put."""
                return ""

        class Careless(Reader):
            @tool
            def view(self) -> str:
                """Look."""
                return ""

        assert [(t.name, t.read_only) for t in tools_of(Reader)] == [("view", True), ("put", False)]
        assert not tools_of(Careless)[0].read_only

    def test_tools_are_values(self):
        assert tools_of(Desk) == tools_of(Desk)
        assert hash(tools_of(Desk)) == hash(tools_of(Desk))
        with pytest.raises(AttributeError):
            tools_of(Desk)[0].name = "x"  # type: ignore[misc]


class TestBadTools:
    def reject(self, said: str, method: Any) -> None:
        with pytest.raises(TypeError, match=said):
            type("Bad", (AgentEnv,), {"bad": method})

    def test_annotations(self):
        def missing(self, x):
            return ""

        def number(self, x: complex):
            return ""

        def union(self, x: int | str):
            return ""

        def literal(self, x: Literal[1, 2]):
            return ""

        def inner(self, x: list[bytes]):
            return ""

        def star(self, *x: int):
            return ""

        def stars(self, **x: int):
            return ""

        def positional(self, x: int, /):
            return ""

        self.reject("'bad'.*'x' has no type annotation", tool(missing))
        self.reject("'bad', parameter 'x': expected str, int, .*complex", tool(number))
        self.reject("expected str, int", tool(union))
        self.reject("Literal of texts", tool(literal))
        self.reject("bytes", tool(inner))
        for method in (star, stars, positional):
            self.reject("plain parameters", tool(method))

    def test_defaults_must_fit(self):
        def none(self, x: str = None):  # noqa: RUF013  # the fault under test
            return ""

        def wrong(self, x: Literal["a"] = "b"):
            return ""

        def unwritable(self, x: int = object()):
            return ""

        self.reject("'bad', parameter 'x': the default must be of type string, got null", tool(none))
        self.reject("the default must be one of a", tool(wrong))
        self.reject("the default must be of type integer", tool(unwritable))

    def test_only_plain_methods(self):
        async def later(self) -> str:
            return ""

        self.reject("plain method", tool(later))
        self.reject("plain method", staticmethod(tool(lambda: "")))
        self.reject("plain method", classmethod(tool(lambda cls: "")))

    @pytest.mark.parametrize(
        "name", ["close", "step", "reset", "render", "finish", "tasks", "episode", "unwrapped"]
    )
    def test_a_tool_may_not_replace_part_of_the_environment(self, name):
        def method(self) -> str:
            return ""

        with pytest.raises(TypeError, match=f"{name!r} of its own"):
            type("Bad", (AgentEnv,), {name: tool(method)})


CHECKER = ArgumentChecker(tools_of(Desk))
FULL = {
    "ratio": 1.5,
    "flag": True,
    "rows": [1],
    "grid": [[1, 2.5]],
    "tree": {"a": 1},
    "bare": [None],
    "old": ["x"],
}


class TestChecker:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"query": "a"},
            {"query": "", "limit": 0, "mode": "full"},
            {"limit": -3, "query": "order does not matter"},
        ],
    )
    def test_good(self, arguments):
        assert CHECKER.problem(ToolCall("search", arguments)) is None

    def test_good_values_of_every_type(self):
        assert CHECKER.problem(ToolCall("every", FULL)) is None
        integer_for_number = FULL | {"ratio": 2, "maybe": None, "also": None, "choice": None, "rows": []}
        assert CHECKER.problem(ToolCall("every", integer_for_number)) is None

    @pytest.mark.parametrize(
        ("name", "arguments", "said"),
        [
            ("serch", {}, "there is no tool 'serch'; the tools are search, every, nothing"),
            ("search", {}, "search needs the argument 'query'"),
            ("every", {}, "needs the argument 'ratio', 'flag', 'rows', 'grid', 'tree', 'bare', 'old'"),
            ("search", {"limit": 1, "mode": "full"}, "search needs the argument 'query'"),
            ("search", {"q": "a"}, "search has no argument 'q'; it takes query, limit, mode"),
            ("nothing", {"a": 1}, "nothing has no argument 'a'; it takes no arguments"),
            ("search", {"query": 5}, "search: argument 'query' must be of type string, got 5"),
            ("search", {"query": None}, "must be of type string, got null"),
            ("search", {"query": "a", "limit": "5"}, "'limit' must be of type integer, got \"5\""),
            ("search", {"query": "a", "limit": 5.0}, "must be of type integer, got 5.0"),
            ("search", {"query": "a", "limit": True}, "must be of type integer, got true"),
            ("search", {"query": "a", "limit": None}, "must be of type integer, got null"),
            ("search", {"query": "a", "mode": "slow"}, 'must be one of fast, full, got "slow"'),
            ("every", FULL | {"ratio": True}, "must be of type number, got true"),
            ("every", FULL | {"flag": 1}, "must be of type boolean, got 1"),
            ("every", FULL | {"rows": "1"}, "must be of type array"),
            ("every", FULL | {"rows": [1, "2"]}, "'rows' has an item that must be of type integer, got \"2\""),
            ("every", FULL | {"rows": [True]}, "has an item that must be of type integer, got true"),
            ("every", FULL | {"grid": [[1], 2]}, "'grid' has an item that must be of type array, got 2"),
            ("every", FULL | {"grid": [[1], [None]]}, "an item that has an item that must be of type number, got null"),
            ("every", FULL | {"tree": []}, "must be of type object, got []"),
            ("every", FULL | {"choice": "c"}, "must be one of a, b, got \"c\""),
            ("every", FULL | {"also": "x"}, "must be of type integer"),
        ],
    )  # fmt: skip
    def test_complaints(self, name, arguments, said):
        assert said in CHECKER.problem(ToolCall(name, arguments))

    def test_complaints_are_short(self):
        assert len(CHECKER.problem(ToolCall("search", {"query": ["x" * 100_000]}))) < 150

    def test_coerce(self):
        assert CHECKER.coerce("search", "query", "5") == "5"
        assert CHECKER.coerce("search", "limit", "5") == 5
        assert CHECKER.coerce("search", "limit", "five") == "five"
        assert CHECKER.coerce("search", "unknown", "5") == "5"
        assert CHECKER.coerce("unknown", "limit", "5") == "5"
        assert CHECKER.coerce("every", "maybe", "null") is None
        assert CHECKER.coerce("every", "maybe", "5") == "5"
        assert CHECKER.coerce("every", "also", "null") is None
        assert CHECKER.coerce("every", "rows", " [1, 2]\n") == [1, 2]


class TestReadJson:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            " 1",
            "1 ",
            "1 2",
            "{} x",
            "NaN",
            "[Infinity]",
            "1e999",
            "-1e999",
            "9" * 101,
            "'a'",
            "[1,]",
            '"\\ud800"',
        ],
    )
    def test_refuses(self, text):
        with pytest.raises(ValueError):
            read_json(text)

    def test_nesting_bound(self):
        assert read_json("[" * 64 + "]" * 64)
        with pytest.raises(ValueError, match="nested too deeply"):
            read_json("[" * 65 + "]" * 65)


class TestRecords:
    def test_defaults(self):
        assert ToolResult("x") == ToolResult("x", error=False, exit_code=None, blocked=False, note="")
        assert ToolCall("x").arguments == {}

    def test_the_shared_default_cannot_change(self):
        with pytest.raises(TypeError):
            ToolCall("x").arguments["a"] = 1  # type: ignore[index]

    def test_seconds_take_no_part_in_comparisons(self):
        call, result = ToolCall("a"), ToolResult("b")
        assert CallRecord(call, result, 1.0) == CallRecord(call, result, 2.0)
        assert CallRecord(call, result) != CallRecord(call, ToolResult("c"))

    def test_tool_holds_no_method(self):
        assert Tool("a", "b", "{}", "a").method == "a"
