"""Inputs that break graders, parsers and evaluations of search agents, as data that any tool can be run on.

The data are ``grading.jsonl``, ``extraction.jsonl`` and ``evaluation.jsonl`` beside this file; docs/conformance.md says
what a line holds and which functions can be checked.
"""
