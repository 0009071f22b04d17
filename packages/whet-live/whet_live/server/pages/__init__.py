"""The pages that people see: server-rendered, light, and usable without scripts."""
