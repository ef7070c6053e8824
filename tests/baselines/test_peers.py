"""Our credit and losses equal torchrl's and TRL's on shared rows, as `benchmarks/peers_losses.py` recorded them."""

import json

import pytest

from benchmarks import peers_losses


@pytest.fixture(scope="module")
def recorded():
    return json.loads(peers_losses.FROZEN.read_text(encoding="utf-8"))


def test_same_numbers(recorded):
    rows = peers_losses.table(recorded)
    assert {row["peer"] for row in rows} == {
        f"torchrl {recorded['versions']['torchrl']}",
        f"torchrl {recorded['versions']['torchrl']}, vectorised",
        f"TRL {recorded['versions']['trl']}",
    }
    for row in rows:
        assert row["difference"] < 1e-6, row
        assert row["numbers"] > 100


def test_the_rows_are_those_of_the_script(recorded):
    """So that running it again compares the same."""
    assert recorded["rows"] == peers_losses.loss_rows()
    assert [
        {k: v for k, v in form.items() if k != "peer"} for form in recorded["loss"]
    ] == peers_losses.loss_forms()
    assert [
        {k: v for k, v in case.items() if k != "peer"} for case in recorded["gae"]
    ] == peers_losses.gae_cases()


def test_a_difference_would_be_seen(recorded):
    form = next(form for form in recorded["loss"] if form["loss_type"] == "grpo" and form["level"] == "token")
    other = peers_losses.ours_loss(recorded["rows"], form | {"loss_type": "dapo"})
    assert other != pytest.approx(form["peer"], abs=1e-6)
