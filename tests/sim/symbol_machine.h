// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/program/slices.h"
#include "sim/program/text.h"
#include "sim/program/walk.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// A flat program whose nodes keep their identity when they are moved.
struct Flat {
  Program program;
  std::vector<std::uint64_t> ids;
};

inline Flat Flatten(const Program& program) {
  Flat flat{Unroll(program), {}};
  for (std::size_t i = 0; i < flat.program.nodes.size(); ++i) {
    flat.ids.push_back(i + 1);
  }
  return flat;
}

inline std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U + b + 0x7F4A7C15U;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9U;
  return x ^ (x >> 32);
}

/// Runs a flat program on symbols. What each node reads is written down by the node's identity. Memory that is
/// allocated is new memory: that it may have been somebody's before is left out.
class SymbolMachine {
 public:
  using Log = std::map<std::uint64_t, std::uint64_t>;

  SymbolMachine(const Flat& flat, Dice& dice, bool lazy) : flat_(flat), dice_(dice), lazy_(lazy) {
    const Program& program = flat.program;
    for (const Buffer& buffer : program.buffers) {
      first_.push_back(cell_of_.size());
      for (std::int64_t i = 0; i < buffer.count(); ++i) {
        cell_of_.push_back(cells_.size());
        cells_.push_back(Mix(1, cells_.size()));
      }
    }
    slices_of_ = SlicesByWhole(program, first_);
    queues_.resize(program.streams.size());
    recorded_.resize(program.events.size());
  }

  Log Run() {
    for (std::size_t at = 0; at < flat_.program.nodes.size(); ++at) {
      Issue(at);
      while (!lazy_ && dice_.OneIn(2)) {
        Proceed();
      }
    }
    Drain(std::nullopt);
    return std::move(log_);
  }

 private:
  /// A node that a stream has been given, or a wait for the `done`-th node that another one was given.
  struct Entry {
    std::size_t node = 0;
    std::vector<std::size_t> cells;  ///< by access
    std::optional<std::pair<std::uint32_t, std::size_t>> after;
  };

  void Issue(std::size_t at) {
    const Node& node = flat_.program.nodes[at];
    if (const auto* record = std::get_if<Record>(&node)) {
      recorded_[record->event.index] = {{record->stream.index, given_[record->stream.index]}};
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      if (recorded_[wait->event.index]) {
        Give(wait->stream.index, {at, {}, recorded_[wait->event.index]});
      }
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      Drain(sync->stream.valid() ? std::optional(sync->stream.index) : std::nullopt);
    } else if (const auto* born = std::get_if<Alloc>(&node)) {
      cell_of_[SlotOf(born->buffer)] = cells_.size();
      cells_.push_back(Mix(3, flat_.ids[at]));
      for (const std::size_t slice : slices_of_[born->buffer.buffer.index]) {
        cell_of_[slice] = cells_.size();
        cells_.push_back(Mix(3, flat_.ids[at]));
      }
    } else if (const std::optional<std::uint32_t> stream = StreamOf(node)) {
      Entry entry{at, {}, std::nullopt};
      ForEachAccess(node, [&](const BufferRef& ref, Access) { entry.cells.push_back(cell_of_[SlotOf(ref)]); });
      if (const auto* dead = std::get_if<Free>(&node)) {
        for (const std::size_t slice : slices_of_[dead->buffer.buffer.index]) {
          entry.cells.push_back(cell_of_[slice]);
        }
      }
      Give(*stream, std::move(entry));
    }
  }

  void Give(std::uint32_t stream, Entry entry) {
    queues_[stream].push_back(std::move(entry));
    ++given_[stream];
  }

  std::optional<std::uint32_t> StreamOf(const Node& node) const {
    if (const auto* dead = std::get_if<Free>(&node)) {
      // The allocator itself waits before it hands out memory whose users were recorded.
      return dead->recorded ? std::nullopt
                            : std::optional(flat_.program.buffers[dead->buffer.buffer.index].stream.index);
    }
    return std::visit(
        [](const auto& leaf) {
          if constexpr (requires { leaf.stream; }) {
            return std::optional(leaf.stream.index);
          } else {
            return std::optional<std::uint32_t>();
          }
        },
        node);
  }

  bool IsReady(std::uint32_t stream) const {
    if (queues_[stream].empty()) {
      return false;
    }
    const auto& after = queues_[stream].front().after;
    const auto done = after ? done_.find(after->first) : done_.end();
    return !after || after->second == 0 || (done != done_.end() && done->second >= after->second);
  }

  /// One stream that can does its next node; false if none can.
  bool Proceed() {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t stream = 0; stream < queues_.size(); ++stream) {
      if (IsReady(stream)) {
        ready.push_back(stream);
      }
    }
    if (ready.empty()) {
      return false;
    }
    const std::uint32_t stream = ready[dice_.Roll(static_cast<std::uint32_t>(ready.size()))];
    const Entry entry = queues_[stream].front();
    queues_[stream].pop_front();
    ++done_[stream];
    if (!entry.after) {
      Execute(entry);
    }
    return true;
  }

  void Drain(std::optional<std::uint32_t> stream) {
    while (stream ? !queues_[*stream].empty() : true) {
      if (!Proceed()) {
        return;
      }
    }
  }

  void Execute(const Entry& entry) {
    const std::uint64_t id = flat_.ids[entry.node];
    const Node& node = flat_.program.nodes[entry.node];
    const bool in_place = std::holds_alternative<Scale>(node);
    std::uint64_t read = Mix(2, id);
    bool reads = false;
    std::size_t number = 0;
    ForEachAccess(node, [&](const BufferRef&, Access access) {
      const std::uint64_t value = cells_[entry.cells[number++]];
      if (access == Access::read || in_place) {
        read = Mix(read, value);
        reads = true;
      }
    });
    if (reads) {
      log_[id] = read;
    }
    number = 0;
    ForEachAccess(node, [&](const BufferRef&, Access access) {
      std::uint64_t& cell = cells_[entry.cells[number++]];
      if (access == Access::free) {
        cell = Mix(4, id);  // nothing that anybody may see
      } else if (access == Access::write) {
        cell = Mix(read, number);
      }
    });
    for (; number < entry.cells.size(); ++number) {  // of what is freed with a buffer that it is a slice of
      cells_[entry.cells[number]] = Mix(4, id);
    }
  }

  std::size_t SlotOf(const BufferRef& ref) const {
    const Buffer& buffer = flat_.program.buffers[ref.buffer.index];
    return buffer.base.valid()
               ? first_[buffer.base.index]
               : first_[ref.buffer.index] +
                     static_cast<std::size_t>(ref.index[0].offset * buffer.extents[1] + ref.index[1].offset);
  }

  const Flat& flat_;
  Dice& dice_;
  bool lazy_;
  std::vector<std::size_t> first_;                   ///< slot of each family
  std::vector<std::size_t> cell_of_;                 ///< by slot: its present memory
  std::vector<std::vector<std::size_t>> slices_of_;  ///< by family: their slots
  std::vector<std::uint64_t> cells_;
  std::vector<std::deque<Entry>> queues_;
  std::map<std::uint32_t, std::size_t> given_, done_;
  std::vector<std::optional<std::pair<std::uint32_t, std::size_t>>> recorded_;
  Log log_;
};

/// Whether some order of streams lets some node read what the right program's never does.
inline bool Changes(const Flat& flat, const SymbolMachine::Log& right, Dice& dice) {
  for (int i = 0; i < 4; ++i) {
    for (const auto& [id, read] : SymbolMachine(flat, dice, i < 2).Run()) {
      const auto found = right.find(id);
      if (found == right.end() || found->second != read) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace tidemark
