"""Parts of the always-on learner: the feedback state, its requirements, the lesson, the gate, and the lease."""
