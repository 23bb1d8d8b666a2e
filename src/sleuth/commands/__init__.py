"""What the verbs of the command line do: read the arguments, call the library, show the result."""
