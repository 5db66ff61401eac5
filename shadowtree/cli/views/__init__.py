"""Results as lines for people: values in, lines out. Names come out escaped."""
