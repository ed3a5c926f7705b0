# SPDX-License-Identifier: Apache-2.0
"""A snapshot of the caching allocator on disk: the pickle that memory_viz reads, in gzip."""

import gzip
import pickle


def write_snapshot(snapshot, path):
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        pickle.dump(snapshot, file, protocol=4)


class _PlainData(pickle.Unpickler):
    """A snapshot is lists, dictionaries, text and numbers: whatever names a class is none."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot that names {module}.{name}")


def read_snapshot(path):
    with gzip.open(path, "rb") as file:
        return _PlainData(file).load()
