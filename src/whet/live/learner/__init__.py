"""Parts of the always-on learner: what was heard, what it demands, the lesson, the gate, and who may work."""
