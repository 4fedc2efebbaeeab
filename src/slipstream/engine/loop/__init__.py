"""What the engine needs of an event loop: time, timers, turns."""
