# SPDX-License-Identifier: Apache-2.0
"""The program under test, and how it is run."""

import os
import subprocess

PROGRAM = os.environ["TIDEMARK_PROGRAM"]


def run(*arguments, **options):
    """Its output as text, and its exit code; a program that hangs ends the test."""
    return subprocess.run([PROGRAM, *map(str, arguments)], **{"capture_output": True, "text": True, "timeout": 280, **options})
