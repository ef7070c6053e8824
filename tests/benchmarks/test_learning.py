"""The rows of runs: what their metrics say, and no more."""

import json

from benchmarks.learning import row_of


def test_an_evaluation_that_broke_leaves_its_cells_empty(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"algorithm": "grpo", "seed": 0}))
    known = {"eval/resolved": 0.25, "eval/resolved_low": 0.1, "eval/resolved_high": 0.5}
    lines = [
        {"step": 0, "time/cpu_seconds": 60, "cost/environment_steps": 8, **known},
        {"step": 1, "time/cpu_seconds": 120, "eval/episodes": 4, "eval/broken": 1.0},
    ]
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = row_of(tmp_path, 0.9)
    assert (row["start"], row["end"], row["interval"], row["goal_step"]) == (0.25, None, None, None)
    metrics.write_text(json.dumps(lines[0]) + "\n")
    assert row_of(tmp_path, 0.2)["interval"] == "0.10 to 0.50"
