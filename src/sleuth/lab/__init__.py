"""The lab: objectives compared fairly, from the same start, on the same questions, with the same budget."""
