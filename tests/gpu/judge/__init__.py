# SPDX-License-Identifier: Apache-2.0
"""PyTorch as the judge of predicted allocations; tests/gpu/pytorch_judge.py is the program."""
