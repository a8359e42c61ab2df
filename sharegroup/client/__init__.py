"""Members of share groups: the share consumer, the group member beneath it, and the admin client."""
