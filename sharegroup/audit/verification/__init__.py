"""Every invariant, checked at every step of the history."""
