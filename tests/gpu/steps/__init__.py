# SPDX-License-Identifier: Apache-2.0
"""Steps of ours: predicted, executed on this machine's device, compared, and kept."""
