"""Commands of `whet` around live prompts. `whet` finds them by the entry points in the group `whet.commands`."""
