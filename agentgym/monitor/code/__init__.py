"""Program text inside calls: Python by its syntax tree, other languages by their literals."""
