"""Where a run tells of itself: the console, and services that keep metrics. `fanout.Fanout` is what the engine holds."""
