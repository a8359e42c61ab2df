"""Group coordinator (members, epochs, assignment) and share coordinator (snapshot and update rows). Pure."""
