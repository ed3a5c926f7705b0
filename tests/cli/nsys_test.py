# SPDX-License-Identifier: Apache-2.0
"""An export of Nsight Systems, made here by Python's SQLite with that schema, from outside."""

import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
PROCESS = 4242 << 24  # how Nsight Systems writes the process 4242

TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
  memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
  textId INTEGER);
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL);
"""


def report(path):
    return subprocess.run([PROGRAM, "report", path, "--format", "json"], capture_output=True, text=True, timeout=60, check=False)


class NsightSystems(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name) / "profile.sqlite"
        self.database = sqlite3.connect(self.path)
        self.addCleanup(self.database.close)
        self.database.executescript(TABLES)
        self.fill("ENUM_CUDA_MEM_KIND", [(1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
                                         (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device")])
        self.fill("ENUM_CUDA_DEV_MEM_EVENT_OPER", [(0, "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION", "Allocation"),
                                                   (1, "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION", "Deallocation")])
        self.fill("StringIds", [(1, "gemm")])
        self.fill("CUPTI_ACTIVITY_KIND_KERNEL", [(5_000, 9_000, 0, 1, 7, 1, PROCESS, 1, 1)])
        self.fill("NVTX_EVENTS", [(1_000, 4_000, 59, "microbatch 0 forward", PROCESS + 1, None),
                                  (4_000, 8_000, 59, "microbatch 0 backward", PROCESS + 1, None)])
        blocks = [(0, 100, 0), (2_000, 200, 0), (4_500, 400, 0), (6_000, 200, 1), (7_000, 300, 0)]
        self.fill("CUDA_GPU_MEMORY_USAGE_EVENTS",
                  [(start, PROCESS, 0, 1, 4096 * n_bytes, 0, n_bytes << 20, 2, operation, None, None)
                   for start, n_bytes, operation in blocks] + [(3_000, PROCESS, 0, 1, 1, 0, 1 << 40, 1, 0, None, None)])

    def fill(self, table, rows):
        self.database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        self.database.commit()

    def test_the_peak_is_that_of_device_memory_with_its_phase(self):
        done = report(self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = json.loads(done.stdout)["traces"][0]
        self.assertEqual((trace["format"], trace["origin"], trace["cut_short"]), ("nsys", "Nsight Systems", None))
        peak = trace["peak"]
        self.assertEqual((peak["role"], peak["allocated_bytes"]), ("cuda:0", (100 + 400 + 300) << 20))
        self.assertEqual((peak["at"]["phase"], peak["at"]["microbatch"], peak["at"]["ns"]), ("backward", 0, 7_000))

    def test_what_the_profiler_lost_is_said(self):
        self.fill("DIAGNOSTIC_EVENT", [(0, 2, "Not all CUDA events might have been collected.")])
        self.assertIn("Not all CUDA events", json.loads(report(self.path).stdout)["traces"][0]["cut_short"])

    def test_another_database_is_refused_with_a_hint(self):
        self.database.executescript("DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;")
        done = report(self.path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("profile.sqlite: an export of Nsight Systems", done.stderr)
        self.assertIn("hint: record with nsys profile --cuda-memory-usage=true", done.stderr)


if __name__ == "__main__":
    unittest.main()
