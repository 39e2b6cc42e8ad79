"""Commands that show what was recorded: `agym view`, `agym report`."""
