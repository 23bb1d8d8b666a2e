"""Imports of every life, done once in the process that lives are forked from."""

import torch

import sleuth.commands.train
import sleuth.report.write
import sleuth.training.run  # noqa: F401

torch.set_num_threads(1)
