"""The two actors of a group: deterministic state machines over the request log. Messages in, effects out. Pure."""
