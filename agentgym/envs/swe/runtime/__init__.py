"""From the source tree of a Python project to an environment in which its tests are known to pass.

What the project declares is read as data (`project`, `metadata`, `needs`, `locks`), an environment is made of it
(`pythonenv`, `wheels`, `interpreters`) and set right by what its tests say (`attempt`, `missing`). `prepared` does it
for one tree, `repositories` for many.
"""
