"""Tags of episodes, and the export of those that a person chooses. Nothing is written into a run folder."""
