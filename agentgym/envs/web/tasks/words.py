"""Invented names that recipes draw from."""

PEOPLE = (
    "Ada Alan Bela Carla Chen Dario Edda Emil Farah Gita Hanno Ines Ivo Jamal Kaya Lena Malik Mira Nadir"
    " Olga Pavel Quinn Rosa Samir Tara Umar Vera Wanda Yusuf Zora"
).split()
PLACES = (
    "Arlen Birkby Corvale Dunmoor Eastwick Farholm Glenrow Hartsea Ilford Kelbourne Lynmouth Marsden"
    " Norwell Oakham Penrith Ravenby Selwick Thornby Ulverton Westmere"
).split()
GOODS = (
    "anvil basket candle drill easel funnel guitar hammer inkwell jacket kettle ladder mirror notebook"
    " oven pillow quilt radio saddle teapot umbrella vase wallet yoyo"
).split()
TOPICS = (
    "archery baking botany ceramics chess cycling fencing forestry geology glaciers harbours juggling"
    " kayaks lighthouses masonry mosses origami pottery rowing sailing volcanoes weaving"
).split()
SENTENCES = (
    "It takes patience and a steady hand.",
    "Most people learn it in a long winter.",
    "The oldest guide to it was printed in Corvale.",
    "It is quieter than it looks from outside.",
    "A good lamp and a warm coat are enough to begin.",
    "Nobody agrees on where it came from.",
    "It is best done before the rain.",
    "You need less room for it than you think.",
)
