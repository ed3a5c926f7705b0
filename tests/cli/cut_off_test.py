# SPDX-License-Identifier: Apache-2.0
"""Files of traces that were cut off: what is read of them, and what becomes of it when it is converted."""

import pathlib
import struct
import tempfile
import unittest

from tidemark import run

JOB = pathlib.Path(__file__).resolve().parents[1] / "golden" / "decoder.yaml"
MAGIC = b"TIDEMARK TRACE 1\n"  # then frames: length, checksum, payload (traces/formats/tidemark_frames.h)


class CutOff(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.trace = cls.folder / "whole.trace"
        changes = ("network.layers=24", "accumulation_steps=4", "layout={dp: 4, pp: 2}")
        done = run("predict", JOB, *(f"--set={change}" for change in changes), "--steps", 2, "--trace", cls.trace)
        assert done.returncode == 0, done.stderr

    def convert(self, path, *arguments):
        done = run("convert", path, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def text(self, path, to):
        return self.convert(path, "--to", to, "-o", "-").stdout

    def test_ours_is_mended_as_far_as_it_goes(self):
        """A frame is whole or it does not count. What was mended reads the same, and still says what it lacks."""
        whole, ends = self.trace.read_bytes(), [len(MAGIC)]
        while ends[-1] < len(whole):
            ends.append(ends[-1] + 8 + struct.unpack_from("<I", whole, ends[-1])[0])
        self.assertEqual(ends[-1], len(whole))
        rows, found, mended = self.text(self.trace, "csv"), [], self.folder / "mended.trace"
        for end in ends[1:-1]:
            cut = self.folder / "cut.trace"
            cut.write_bytes(whole[:end + 5])
            note = self.convert(cut, "-o", mended).stderr
            self.assertRegex(note, r"^note: .*cut\.trace: the file was cut off or damaged after [\d,]+ events\n")
            self.assertTrue(self.text(mended, "jsonl") == self.text(cut, "jsonl"))
            again = self.convert(mended, "--to", "csv", "-o", "-")
            self.assertEqual(again.stderr.splitlines()[0].split(": ", 2)[2], note.splitlines()[0].split(": ", 2)[2])
            self.assertTrue(rows.startswith(again.stdout))
            found.append(len(again.stdout))
        self.assertEqual(found, sorted(found))
        self.assertGreater(len(set(found)), 4)  # frames of events in the middle of either stage
        self.assertEqual(found[-1], len(rows))  # only the end was missing

    def test_before_its_first_trace_there_is_nothing_to_read(self):
        cut = self.folder / "begun.trace"
        cut.write_bytes(MAGIC)
        done = run("convert", cut, "--to", "csv", "-o", "-")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("cut off before its first one", done.stderr)

    def test_chrome_json_is_read_as_far_as_it_goes_and_a_pickle_is_refused(self):
        for format, code in (("chrome", 0), ("torch-snapshot", 2)):
            path, cut = self.folder / f"whole.{format}", self.folder / f"cut.{format}"
            self.convert(self.trace, "--to", format, "-o", path)
            cut.write_bytes(path.read_bytes()[:path.stat().st_size // 3])
            done = run("convert", cut, "--to", "csv", "-o", "-")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn("cut off", done.stderr)
            self.assertTrue(self.text(path, "csv").startswith(done.stdout))
            self.assertEqual(done.stdout.count("\n") > 1000, code == 0)
        mended = self.folder / "mended.chrome"
        self.convert(self.folder / "cut.chrome", "--to", "chrome", "-o", mended)
        self.assertTrue(self.text(mended, "csv") == self.text(self.folder / "cut.chrome", "csv"))
        self.assertNotIn("note: ", self.convert(mended, "--to", "csv", "-o", "-").stderr)


if __name__ == "__main__":
    unittest.main()
