"""The ops of a stage, and what they share."""
