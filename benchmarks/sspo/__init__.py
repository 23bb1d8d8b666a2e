"""What a teacher that has seen the evidence brings, and what it costs."""
