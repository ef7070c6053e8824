"""Is a task fit for training: is it clear what is asked for, and do its tests ask for that and nothing else?

`assess` gives the labels of one record and `assess_records` a report on many. What reading shows is in
`deterministic`, what runs of the tests show in `runs`, what a language model says in `judge`; `findings` lists every
kind of fault.
"""

from __future__ import annotations
