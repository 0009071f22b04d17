"""From critiques to managed instructions: read, consolidate, change, and the guard in front."""
