"""Other people's libraries, each in a file of its own that is imported by whoever uses it, and imports its library on use."""
