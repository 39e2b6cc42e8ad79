"""What every command is given: streams, a compiled recipe, engines."""
