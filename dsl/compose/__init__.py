"""From the files of a recipe to whole trees: bases, settings, the matrix, references."""
