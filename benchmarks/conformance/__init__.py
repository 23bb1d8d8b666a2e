"""How graders that can be installed fare in the conformance suite."""
