"""What the packaged houses are made of: rooms with their furniture, things with their uses and places."""

from __future__ import annotations

from dataclasses import dataclass

OPENABLE = frozenset("fridge microwave cabinet drawer safe laundryhamper".split())

# Room -> furniture -> the least and the most of it.
ROOMS: dict[str, dict[str, tuple[int, int]]] = {
    "kitchen": {
        "fridge": (1, 1),
        "microwave": (1, 1),
        "sinkbasin": (1, 1),
        "countertop": (1, 3),
        "cabinet": (2, 8),
        "drawer": (1, 6),
        "shelf": (0, 3),
        "diningtable": (0, 1),
        "stoveburner": (2, 4),
        "coffeemachine": (1, 1),
        "garbagecan": (1, 1),
    },
    "bathroom": {
        "sinkbasin": (1, 2),
        "countertop": (1, 1),
        "cabinet": (1, 4),
        "toilet": (1, 1),
        "shelf": (0, 2),
        "garbagecan": (1, 1),
    },
    "bedroom": {
        "bed": (1, 1),
        "desk": (1, 2),
        "sidetable": (1, 2),
        "dresser": (0, 1),
        "drawer": (1, 8),
        "shelf": (0, 4),
        "safe": (0, 1),
        "laundryhamper": (0, 1),
        "garbagecan": (1, 1),
    },
    "livingroom": {
        "sofa": (1, 1),
        "armchair": (1, 2),
        "coffeetable": (1, 1),
        "sidetable": (1, 2),
        "diningtable": (0, 1),
        "tvstand": (1, 1),
        "cabinet": (0, 3),
        "drawer": (0, 5),
        "shelf": (0, 3),
        "garbagecan": (1, 1),
    },
}


@dataclass(frozen=True, slots=True)
class Thing:
    """A kind of thing.

    Attributes:
        uses: of clean, heat, cool, slice, cut (others).
        places: the furniture it is found on, and can be put on.
    """

    uses: frozenset[str]
    places: frozenset[str]


_GROUPS = {
    "food": "countertop diningtable fridge sinkbasin microwave garbagecan",
    "dish": "countertop diningtable cabinet shelf sinkbasin microwave fridge coffeemachine desk sidetable coffeetable",
    "pan": "countertop diningtable stoveburner cabinet sinkbasin",
    "cutlery": "countertop diningtable drawer sinkbasin",
    "small": "desk drawer sidetable dresser shelf coffeetable diningtable armchair sofa bed tvstand safe",
    "bath": "countertop cabinet shelf toilet sinkbasin garbagecan",
    "ornament": "shelf sidetable desk dresser coffeetable diningtable tvstand cabinet safe",
    "cushion": "bed sofa armchair",
    "spice": "countertop diningtable cabinet drawer shelf",
}
_KINDS = """
apple food clean heat cool slice; tomato food clean heat cool slice; potato food clean heat cool slice
lettuce food clean cool slice; bread food heat cool slice; egg food clean heat cool
mug dish clean heat cool; cup dish clean heat cool; plate dish clean heat cool; bowl dish clean cool
pan pan clean cool; pot pan clean cool; kettle pan clean
knife cutlery clean cut; butterknife cutlery clean cut; fork cutlery clean; spoon cutlery clean; ladle cutlery clean
saltshaker spice; peppershaker spice; dishsponge bath clean; soapbar bath clean; cloth bath clean
soapbottle bath; spraybottle bath; toiletpaper bath; candle bath
book small; pen small; pencil small; cd small; cellphone small; creditcard small; keychain small; watch small
laptop small; newspaper small; remotecontrol small; tissuebox small
vase ornament; statue ornament; alarmclock ornament; pillow cushion
"""
THINGS: dict[str, Thing] = {
    words[0]: Thing(frozenset(words[2:]), frozenset(_GROUPS[words[1]].split()))
    for words in (part.split() for part in _KINDS.replace("\n", ";").split(";"))
    if words
}
LAMP = "desklamp"
LAMP_PLACES = ("desk", "sidetable", "dresser", "coffeetable")
