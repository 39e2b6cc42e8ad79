"""Files of a recipe to complete trees: bases, settings, the matrix, references."""
