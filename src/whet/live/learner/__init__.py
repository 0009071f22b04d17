"""Parts of the always-on learner: the feedback state, its requirements, the update, the gate, and the lease."""
