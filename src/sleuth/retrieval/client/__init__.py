"""Searching a server over HTTP from rollouts: whatever the server does, a search ends in time with a known outcome."""
