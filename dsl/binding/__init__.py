"""From a checked tree to a Recipe whose values know where they came from."""
