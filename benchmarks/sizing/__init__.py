"""What `sleuth plan` says, against what this machine's CPU does."""
