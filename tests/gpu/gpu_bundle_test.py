# SPDX-License-Identifier: Apache-2.0
"""The folder that goes to a machine with a GPU: is it whole, small, and honest where there is no GPU?"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LARGEST = 48 << 20  # bytes, all of it


def call(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False, **more)


def glibc_of(program):
    """The loader and the parts of the C library that a program is bound to: those that a bundle leaves to the machine."""
    for line in call("ldd", program).stdout.splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        name = pathlib.Path(path).name if path else ""
        if name.split(".")[0] in ("libc", "libm", "libdl", "librt", "libpthread", "libresolv", "libutil",
                                  "ld-linux-x86-64"):
            yield pathlib.Path(path)


class GpuBundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.bundle = cls.root / "bundle"
        made = call("cmake", "--install", os.environ["TIDEMARK_BUILD"], "--component", "gpu_bundle", "--strip", "--prefix",
                    cls.bundle)
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_is_whole_and_small(self):
        for part in ("tidemark", "gpu_test", "gpu_ranks", "memory_experiment", "run", "mpirun", "lib", "jobs/oracle.yaml",
                     "experiments/gpu/pytorch_judge.py", "experiments/gpu/own_steps.py", "experiments/bench/against_pytorch.py",
                     "experiments/CHANGELOG.md"):
            self.assertTrue((self.bundle / part).exists(), part)
        size = sum(path.stat().st_size for path in self.bundle.rglob("*") if path.is_file() and not path.is_symlink())
        self.assertLess(size, LARGEST)

    def test_runs_on_any_recent_processor(self):
        """This machine's may have wider vectors (AVX-512) than that one's."""
        code = subprocess.Popen(["objdump", "--disassemble", "--no-show-raw-insn", str(self.bundle / "tidemark")],
                                stdout=subprocess.PIPE)
        found = subprocess.run(["grep", "--max-count=1", "%zmm"], stdin=code.stdout, capture_output=True, text=True,
                               check=False)
        code.stdout.close()
        code.kill()
        code.wait()
        self.assertEqual(found.stdout, "")

    def test_holds_every_library_but_the_machines_own(self):
        """Each comes from the bundle, the C library excepted; of CUDA nothing is bound when a program starts."""
        own = {path.name for path in glibc_of(self.bundle / "tidemark")}
        for program in ("tidemark", "gpu_test", "gpu_ranks", "memory_experiment"):
            for line in call("ldd", self.bundle / program).stdout.splitlines():
                words = line.split()
                if "=>" in words and words[0] not in own:
                    self.assertTrue(words[2].startswith(str(self.bundle)), line)

    @unittest.skipUnless(call("unshare", "--mount", "true").returncode == 0, "no mount namespace is to be had here")
    def test_runs_in_an_empty_root(self):
        """Nothing but the bundle, the C library and /proc, which tells a program where it lies: no folder of this machine
        is needed."""
        (self.root / "proc").mkdir()

        def inside(*words):
            return call("unshare", "--mount", "sh", "-c", 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"',
                        self.root, *words)

        for path in glibc_of(self.bundle / "tidemark"):
            at = self.root / str(path)[1:]
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, at)
        done = inside("/bundle/tidemark", "predict", "/bundle/jobs/oracle.yaml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("peak", done.stdout)
        # Ranks of its own mpirun, whose wrapper is a script.
        for at in ("bin", "dev", "tmp", "sys"):
            (self.root / at).mkdir(exist_ok=True)
        shutil.copy(pathlib.Path("/bin/sh").resolve(), self.root / "bin/sh")
        done = call("unshare", "--mount", "sh", "-c", 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && '
                    'mount --rbind /sys "$0/sys" && exec chroot "$0" "$@"', self.root, "/bundle/tidemark", "run",
                    "/bundle/jobs/demo-small.yaml", "--format", "json",
                    env={**os.environ, "PATH": f"/bundle:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout)["ranks"], 2)
        done = inside("/bundle/gpu_test", "--gtest_list_tests")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ProbeDevicesOnGpu", done.stdout)

    def test_an_experiment_says_what_is_missing(self):
        done = call(self.bundle / "memory_experiment", "none")
        if done.returncode == 0:
            self.skipTest("this machine has a GPU")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("error: GPU 0 cannot be used: ", done.stderr)
        self.assertEqual(call(self.bundle / "memory_experiment", "all").returncode, 2)

    def test_says_what_is_missing_where_there_is_no_gpu(self):
        if call(self.bundle / "tidemark", "doctor", "--require", "cuda").returncode == 0:
            self.skipTest("this machine has a GPU")
        results = self.root / "results"
        done = call(self.bundle / "run", results)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("error: no GPU can be used here", done.stderr)
        self.assertIn("GPU       none", (results / "doctor.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    if os.environ.get("TIDEMARK_HAS_CUDA") != "ON":
        print("built without CUDA: there is no bundle")
        sys.exit(77)
    unittest.main()
