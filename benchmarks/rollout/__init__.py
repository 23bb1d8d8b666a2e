"""What multi-turn rollouts cost: Sleuth's sampler, decode-and-resend, and TRL's tool loop on equal work.

``python -m benchmarks.rollout --model FOLDER`` prints a Markdown table. Every contender runs the same model over the
same prompts, with the same number of turns, sampled tokens a turn and observation tokens, on the same threads.
"""
