"""Where a run tells of itself: the console, and services that keep metrics. The engine holds a `fanout.Fanout`."""
