// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/result.h"
#include "traces/formats/pickle_value.h"

namespace tidemark {

// Reads what Python's `pickle.dump` and PyTorch's C++ writer make of plain data: protocols 2 to 5 (opcodes as in
// CPython's Lib/pickletools.py). Nothing is ever executed: what names, builds or calls an object is refused.
// Time is linear in the file, memory at most some 30 bytes for each of its bytes.

/// Is shown every container when it is complete, before it becomes part of another one, and may replace it by something
/// smaller: so a file of a million dictionaries never exists as a million dictionaries.
class PickleListener {
 public:
  virtual ~PickleListener() = default;

  /// What stands in the place of `container` from now on: a record or any plain value, or `container` as it is.
  /// Called once for each.
  virtual Result<PickleValue> Finish(const PickleHeap& heap, PickleValue container) = 0;
};

/// Whether a file begins like a pickle of protocol 2 or later that holds a list, a dictionary, or an object.
bool LooksLikePickle(std::string_view head);

/// The value that the pickle holds, whose containers live in `heap`. Not shown to the listener.
Result<PickleValue> ReadPickle(std::string_view bytes, PickleHeap& heap, PickleListener& listener);

}  // namespace tidemark
