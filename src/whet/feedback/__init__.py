"""What arrives from the world about answers, and what a prompt learns from it."""
