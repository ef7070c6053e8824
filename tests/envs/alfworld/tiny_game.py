"""A game of one room, written by hand: a lamp, two boxes, a cup, and a few rules that ALFWorld's own do not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOMAIN = """
; comments are dropped (even with brackets
(define (domain tiny)
  (:requirements :adl :typing)
  (:types agent place box thing - object)
  (:predicates (atLocation ?a - agent ?p - place) (standsAt ?b - box ?p - place) (inBox ?t - thing ?b - box)
    (open ?b - box) (locked ?b - box) (holds ?a - agent ?t - thing) (lit ?t - thing) (lamp ?t - thing)
    (empty ?p - place))
  (:functions (total-cost) - number)
  (:action Walk
    :parameters (?a - agent ?from - place ?to - place)
    :precondition (atLocation ?a ?from)
    :effect (and (not (atLocation ?a ?from)) (atLocation ?a ?to) (increase (total-cost) 1)))
  (:action Unlid
    :parameters (?a - agent ?p - place ?b - box)
    :precondition (and (atLocation ?a ?p) (standsAt ?b ?p) (not (open ?b))
                       (imply (locked ?b) (exists (?t - thing) (lit ?t))))
    :effect (open ?b))
  (:action Grab
    :parameters (?a - agent ?t - thing ?b - box)
    :precondition (and (exists (?p - place) (and (atLocation ?a ?p) (standsAt ?b ?p))) (inBox ?t ?b) (open ?b)
                       (not (exists (?o - thing) (holds ?a ?o))))
    :effect (and (not (inBox ?t ?b)) (holds ?a ?t)))
  (:action Press
    :parameters (?a - agent ?t - thing)
    :precondition (and (holds ?a ?t) (lamp ?t))
    :effect (and (when (lit ?t) (not (lit ?t))) (when (not (lit ?t)) (lit ?t))
                 (forall (?b - box) (when (locked ?b) (open ?b)))))
)
"""

GRAMMAR = '''
grammar :: """
    {
        "intro": [{"rhs": "Welcome.\\n\\n#scene#"}],
        "scene": [
            {"condition": "atlocation(a:agent, to:place) & standsat(b:box, to:place)",
             "rhs": "Here: [{#named(b)# | atlocation(a:agent, to:place) & standsat(b:box, to:place)}]."},
            {"rhs": "Nothing is here."}
        ],
        "named(b)": [{"rhs": "{b.indefinite} {b.name}#lid(b)#"}],
        "lid(b)": [{"condition": "open(b:box)", "rhs": "(open)"}, {"rhs": ""}],
        "missing": [
            {"condition": "not_inbox(t:thing, b:box)", "rhs": "[{t.name | not_inbox(t:thing, b:box)}]"},
            {"rhs": "none"}
        ],
        "list_empty": [{"rhs": "nothing"}],
        "list_separator": [{"rhs": ", "}],
        "list_last_separator": [{"rhs": ", and "}]
    }
""";

# a comment between the parts
action Walk { template :: "walk to {to}"; feedback :: "#scene#"; }
action Unlid {
    template :: "unlid {b}";
    feedback :: "The {b.name} is open: [{t.definite + ' ' + t.name | inbox(t:thing, b:box)}].";
}
action Grab { template :: "grab {t}"; feedback :: "Taken: {t.name}. Gone: #missing#. }ignored"; }
action Press {
    template :: "press {t}";
    feedback :: "#press#";
    grammar :: """
        {
        # only here are such lines comments
        "press": [{"condition": "lit(t:thing)", "rhs": "Light!"}, {"rhs": "Dark."}]
        }
    """;
}
'''

PROBLEM = """
(define (problem room) (:domain tiny)
  (:objects me - agent north_bar_1 south_bar_2 - place
            Box_bar_1 Box_bar_2 - box  Cup_bar_1 Lamp_bar_1 Unused_bar_1 - thing)
  (:init (= (total-cost) 0) (atLocation me north_bar_1) (standsAt Box_bar_1 north_bar_1)
         (standsAt Box_bar_2 north_bar_1)
         (inBox Cup_bar_1 Box_bar_2) (inBox Lamp_bar_1 Box_bar_1) (locked Box_bar_2) (lamp Lamp_bar_1)
         (standsAt Box_bar_1 north_bar_1) (empty south_bar_2))
  (:goal (and (forall (?b - box) (open ?b)) (exists (?t - thing) (and (lit ?t) (holds me ?t))))))
"""


def write_game(folder: Path, **changes: Any) -> Path:
    """A folder as ALFWorld has them, with the game above; the path of the game file."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "pddl_domain": DOMAIN,
        "grammar": GRAMMAR,
        "pddl_problem": PROBLEM,
        "solvable": True,
        "walkthrough": ["unlid box 2", "grab lamp 1", "press lamp 1"],
    }
    (folder / "game.tw-pddl").write_text(json.dumps(data | changes), encoding="utf-8")
    traj = {"task_type": "pick_and_place_simple", "turk_annotations": {"anns": []}}
    (folder / "traj_data.json").write_text(json.dumps(traj), encoding="utf-8")
    return folder / "game.tw-pddl"
