"""The hundred rules, ten for each part of a page."""
