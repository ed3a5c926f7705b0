// SPDX-License-Identifier: Apache-2.0
#include "sim/program/same_but_for_sizes.h"

#include <algorithm>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

bool SameBuffers(const Buffer& a, const Buffer& b) {
  return a.name == b.name && a.category == b.category && a.extents == b.extents && a.base == b.base &&
         std::ranges::equal(a.slices, b.slices, {}, &BufferSlice::of, &BufferSlice::of) && a.resident == b.resident &&
         a.kept == b.kept;
}

/// What of a leaf is no size, beside the buffers that it names.
struct SameKind {
  const Node& other;

  template <class Leaf>
  bool operator()(const Leaf& a) const {
    const Leaf& b = std::get<Leaf>(other);
    bool same = true;
    if constexpr (requires { a.name; }) {
      same = same && a.name == b.name;
    }
    if constexpr (requires { a.stream; }) {
      same = same && a.stream == b.stream;
    }
    if constexpr (requires { a.event; }) {
      same = same && a.event == b.event;
    }
    if constexpr (requires { a.op; }) {
      same = same && a.op.index() == b.op.index() && a.beside == b.beside;
    }
    if constexpr (requires { a.group; }) {
      same = same && a.group == b.group && a.kind == b.kind && a.flight == b.flight;
    }
    if constexpr (requires { a.count; }) {
      same = same && a.count == b.count && a.size == b.size;
    }
    return same;
  }
};

bool SameNodes(const Node& a, const Node& b) {
  if (a.index() != b.index() || !std::visit(SameKind{b}, a)) {
    return false;
  }
  std::vector<BufferRef> named, named_there;
  ForEachAccess(a, [&](const BufferRef& ref, Access) { named.push_back(ref); });
  ForEachAccess(b, [&](const BufferRef& ref, Access) { named_there.push_back(ref); });
  return named == named_there;
}

bool SamePrograms(const Program& a, const Program& b) {
  return a.names == b.names && a.flight_sets == b.flight_sets &&
         std::ranges::equal(a.buffers, b.buffers, SameBuffers) && std::ranges::equal(a.nodes, b.nodes, SameNodes);
}

}  // namespace

bool SameButForSizes(const StepProgram& a, const StepProgram& b) {
  return std::ranges::equal(a.roles, b.roles, SamePrograms);
}

}  // namespace tidemark
