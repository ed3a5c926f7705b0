// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "sim/program/program.h"

namespace tidemark {

inline bool Reads(const Compute& kernel, const BufferRef& ref) {
  return std::find(kernel.reads.begin(), kernel.reads.end(), ref) != kernel.reads.end();
}

/// A kernel of the optimizer that changes some of what it reads: each of these buffers by itself.
inline bool ScalesInPlace(const Compute& kernel) {
  return kernel.work == Work::optimizer && std::all_of(kernel.writes.begin(), kernel.writes.end(),
                                                       [&](const BufferRef& ref) { return Reads(kernel, ref); });
}

/// A kernel of the optimizer that makes numbers about gradients, such as their norm, and no gradient.
inline bool Measures(const Program& program, const Compute& kernel) {
  return kernel.work == Work::optimizer &&
         std::all_of(kernel.writes.begin(), kernel.writes.end(), [&](const BufferRef& ref) {
           return program.buffers[ref.buffer.index].category == Category::workspace;
         });
}

}  // namespace tidemark
