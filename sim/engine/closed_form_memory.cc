// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/closed_form.h"

#include <algorithm>

namespace tidemark {
namespace {

/// Folds the nodes from `at` up to `end`, both indices of Program::nodes. Phases nest, so the innermost one at any
/// node is known from the nodes before it.
class MemoryFold {
 public:
  explicit MemoryFold(const Program& program) : program_(program) {}

  MemorySegment Fold(std::size_t at, std::size_t end) {
    MemorySegment all;
    while (at < end) {
      const Node& node = program_.nodes[at++];
      if (const auto* repeat = std::get_if<Repeat>(&node)) {
        all = Then(all, Times(Fold(at, at + repeat->size), repeat->count));
        at += repeat->size;
      } else if (const auto* alloc = std::get_if<Alloc>(&node)) {
        Add(all, Of(alloc->buffer), 1);
      } else if (const auto* free = std::get_if<Free>(&node)) {
        Add(all, Of(free->buffer), -1);
      } else if (const auto* begin = std::get_if<Begin>(&node)) {
        phases_.push_back(begin->phase);
      } else if (std::holds_alternative<End>(node)) {
        phases_.pop_back();
      }
    }
    return all;
  }

 private:
  const Buffer& Of(const BufferRef& ref) const { return program_.buffers[ref.buffer.index]; }

  /// Appends one allocation (sign 1) or free (-1): Then() for a segment of one leaf, without building it.
  void Add(MemorySegment& all, const Buffer& buffer, std::int64_t sign) const {
    const Bytes bytes = buffer.bytes() * sign;
    if (buffer.place == Place::host) {
      all.host_net += bytes;
      all.host_rise = std::max(all.host_rise, all.host_net);
      return;
    }
    all.net[buffer.category] += bytes;
    all.net_total += bytes;
    if (all.net_total > all.rise) {
      all.rise = all.net_total;
      all.content = all.net;
      all.rises = true;
      all.phase = phases_.empty() ? Phase::load : phases_.back();
    }
  }

  const Program& program_;
  std::vector<Phase> phases_;
};

}  // namespace

MemorySegment Then(const MemorySegment& first, const MemorySegment& second) {
  MemorySegment both = first;
  const Bytes between = first.net_total;
  if (second.rises && between + second.rise > first.rise) {
    both.rise = between + second.rise;
    both.content = first.net + second.content;
    both.rises = true;
    both.phase = second.phase;
  }
  both.host_rise = std::max(first.host_rise, first.host_net + second.host_rise);
  both.host_net += second.host_net;
  both.net += second.net;
  both.net_total += second.net_total;
  return both;
}

MemorySegment Times(const MemorySegment& body, std::int64_t count) {
  if (count == 0) {
    return {};
  }
  MemorySegment before_highest;
  const bool grows = body.net_total > Bytes(0);
  if (grows) {
    // Each repetition starts higher than the one before: the last one holds the highest instant. Repetitions before it
    // never exceed it, so what they rise to needs no mention.
    before_highest.net = body.net * (count - 1);
    before_highest.net_total = body.net_total * (count - 1);
  }
  before_highest.host_net = std::max(Bytes(0), body.host_net * (count - 1));
  MemorySegment all = Then(before_highest, body);
  all.host_net = body.host_net * count;
  all.net = body.net * count;
  all.net_total = body.net_total * count;
  return all;
}

namespace {

/// What the program finds.
MemorySegment Resident(const Program& program) {
  MemorySegment start;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.resident) {
      const Bytes bytes = buffer.bytes() * buffer.count();
      (buffer.place == Place::device ? start.net[buffer.category] : start.host_net) += bytes;
    }
  }
  start.host_rise = start.host_net;
  start.net_total = start.net.Total();
  start.rise = start.net_total;
  start.content = start.net;
  start.rises = start.rise > Bytes(0);
  return start;
}

MemoryPeak PeakOf(const MemorySegment& all) { return {all.rise, all.content, all.phase, all.host_rise}; }

}  // namespace

MemoryPeak FoldMemory(const Program& program) {
  return PeakOf(Then(Resident(program), MemoryFold(program).Fold(0, program.nodes.size())));
}

CountedMemory FoldMemoryAround(const Program& program, std::size_t loop) {
  MemoryFold fold(program);
  CountedMemory memory;
  memory.before = Then(Resident(program), fold.Fold(0, loop));
  const std::size_t end = loop + 1 + std::get<Repeat>(program.nodes[loop]).size;
  memory.body = fold.Fold(loop + 1, end);
  memory.behind = fold.Fold(end, program.nodes.size());
  return memory;
}

MemoryPeak CountedMemory::Peak(std::int64_t count) const {
  return PeakOf(Then(Then(before, Times(body, count)), behind));
}

}  // namespace tidemark
