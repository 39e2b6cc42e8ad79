"""The form of a recipe: its JSON Schema, and what is said of a tree that departs from it."""
