"""The console, and services that keep metrics; the engine holds a `fanout.Fanout`."""
