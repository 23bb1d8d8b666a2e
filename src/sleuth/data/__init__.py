"""Question sets: loading, checking, comparing and converting them."""
