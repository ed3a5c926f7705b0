// SPDX-License-Identifier: Apache-2.0
#include "sim/program/verify_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>

#include "sim/program/layers.h"
#include "sim/program/slices.h"
#include "sim/program/text.h"

namespace tidemark {
namespace {

using Rule = Finding::Rule;

/// Takes over what `other` knows.
void Join(std::vector<std::uint32_t>& clock, const std::vector<std::uint32_t>& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

bool SpansRoles(const Group& group) { return group.name == "pp" || group.name == "embedding" || group.name == "world"; }

std::string_view Participle(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "written" : "freed";
}

}  // namespace

std::string ShortName(const Program& program, const Node& node) {
  return std::visit(
      [&](const auto& leaf) {
        std::string line = Print(program, Node(leaf));
        if constexpr (requires { leaf.name; }) {
          // The verb of the line and the name of the operation, without attributes and buffers.
          return line.substr(0, line.find(' ')) + " " + program.names[leaf.name.index];
        } else {
          return line;
        }
      },
      node);
}

std::string DescribeNode(const Program& program, std::size_t at, std::span<const std::int64_t> loops) {
  std::string text = fmt::format("{}, node {} ({}", program.role, at, ShortName(program, program.nodes[at]));
  for (std::size_t i = 0; i < at; ++i) {
    const auto* repeat = std::get_if<Repeat>(&program.nodes[i]);
    if (repeat != nullptr && at <= i + repeat->size) {
      text += fmt::format(", {}={}", program.loops[repeat->loop.index], loops[repeat->loop.index]);
    }
  }
  return text + ")";
}

RoleVerifier::RoleVerifier(const Program& program, Findings& findings)
    : program_(program),
      findings_(findings),
      clocks_(program.streams.size(), Clock(program.streams.size())),
      recorded_(program.events.size()),
      issued_(program.streams.size()) {
  for (const Buffer& buffer : program.buffers) {
    first_slot_.push_back(states_.size());
    states_.resize(states_.size() + static_cast<std::size_t>(buffer.is_view() ? 0 : buffer.count()),
                   State{.alive = buffer.resident});
  }
  reads_.resize(states_.size() * program.streams.size());
  for (const Buffer& buffer : program.buffers) {
    first_slice_.push_back(blank_slices_.size());
    blank_slices_.resize(blank_slices_.size() + buffer.slices.size());
  }
  slices_ = SlicesByWhole(program, first_slice_);
  for (const Group& group : program.groups) {
    if (SpansRoles(group)) {
      traffic_.collectives.try_emplace(group.name);
    }
  }
}

void RoleVerifier::Run() {
  ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
    Visit(at, loops);
    return !findings_.full();
  });
  if (!findings_.full()) {
    CheckEnd();
  }
}

void RoleVerifier::Visit(std::size_t at, std::span<const std::int64_t> loops) {
  at_ = at;
  loops_ = loops;
  const Node& node = program_.nodes[at];
  std::visit(
      [&](const auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (std::same_as<Leaf, Record>) {
          OnRecord(leaf);
        } else if constexpr (std::same_as<Leaf, Wait>) {
          OnWait(leaf);
        } else if constexpr (std::same_as<Leaf, HostSync>) {
          OnSync(leaf);
        } else if constexpr (std::same_as<Leaf, Begin>) {
          OnBegin(leaf);
        } else if constexpr (std::same_as<Leaf, End>) {
          OnEnd(leaf);
        } else if constexpr (requires { leaf.stream; }) {
          Issue(leaf.stream);
        }
        if constexpr (std::same_as<Leaf, Collective>) {
          OnCollective(leaf);
        } else if constexpr (std::same_as<Leaf, Send>) {
          traffic_.sent[program_.channels[leaf.channel.index].name].push_back(
              program_.buffers[leaf.buffer.buffer.index].bytes());
        } else if constexpr (std::same_as<Leaf, Recv>) {
          traffic_.received[program_.channels[leaf.channel.index].name].push_back(
              program_.buffers[leaf.buffer.buffer.index].bytes());
        }
      },
      node);
  ForEachAccess(node, [&](const BufferRef& ref, Access access) { Touch(ref, access); });
}

void RoleVerifier::Issue(StreamId stream) {
  stream_ = stream.index;
  Join(clocks_[stream_], clocks_[0]);
  issued_[stream_].push_back({static_cast<std::uint32_t>(at_), microbatch_, side_,
                              races_ == nullptr ? std::nullopt : LayerOf(program_, program_.nodes[at_], loops_)});
  ++clocks_[stream_][stream_];
}

void RoleVerifier::Touch(const BufferRef& ref, Access access) {
  const Buffer& buffer = program_.buffers[ref.buffer.index];
  const std::int64_t found = SlotOf(ref);
  if (found < 0) {
    return Add(Rule::index_out_of_range, ref.buffer.index,
               fmt::format("{} is outside its family of {} x {} buffers", Resolved(ref), buffer.extents[0],
                           buffer.extents[1]));
  }
  const auto slot = static_cast<std::size_t>(found);
  if (access == Access::alloc) {
    return OnAlloc(buffer, slot, ref);
  }
  if (!states_[slot].alive) {
    Add(Rule::used_before_alloc, ref.buffer.index,
        fmt::format("{} is {} while it is not allocated", Resolved(ref), Participle(access)));
  } else if (access == Access::free) {
    OnFree(buffer, slot, ref);
  } else {
    OnAccess(slot, ref, access);
  }
}

void RoleVerifier::OnAlloc(const Buffer& buffer, std::size_t slot, const BufferRef& ref) {
  if (states_[slot].alive) {
    Add(Rule::allocated_twice, ref.buffer.index, fmt::format("{} is allocated while it is alive", Resolved(ref)));
  }
  states_[slot] = {.alive = true, .blank = true};
  for (const std::size_t slice : slices_[ref.buffer.index]) {
    blank_slices_[slice] = true;
  }
  std::ranges::copy(clocks_[buffer.stream.index], &reads_[slot * clocks_.size()]);
}

void RoleVerifier::OnFree(const Buffer& buffer, std::size_t slot, const BufferRef& ref) {
  if (!std::get<Free>(program_.nodes[at_]).recorded) {
    Clock clock = clocks_[buffer.stream.index];
    Join(clock, clocks_[0]);
    CheckOrder(slot, ref, Access::free, buffer.stream.index, clock);
  }
  states_[slot].alive = false;
}

void RoleVerifier::OnAccess(std::size_t slot, const BufferRef& ref, Access access) {
  const Clock& clock = clocks_[stream_];
  CheckOrder(slot, ref, access, stream_, clock);
  std::uint32_t* const reads = &reads_[slot * clocks_.size()];
  const Buffer& buffer = program_.buffers[ref.buffer.index];
  bool blank = states_[slot].blank;
  if (!buffer.slices.empty()) {
    const std::size_t slice = first_slice_[ref.buffer.index] + static_cast<std::size_t>(MemberOf(buffer, ref, loops_));
    blank = blank_slices_[slice];
    blank_slices_[slice] = blank && access == Access::read;
  }
  if (access == Access::read) {
    if (blank) {
      Add(Rule::read_before_write, ref.buffer.index, fmt::format("{} is read before it was written", Resolved(ref)));
    }
    reads[stream_] = clock[stream_];
  } else {
    states_[slot] = {.alive = true, .blank = false, .writer = stream_, .written = clock[stream_]};
    std::fill_n(reads, clocks_.size(), 0);
  }
}

void RoleVerifier::CheckOrder(std::size_t slot, const BufferRef& ref, Access access, std::uint32_t stream,
                              const Clock& clock) {
  const State& state = states_[slot];
  if (state.written > clock[state.writer]) {
    return ReportOrder(ref, access, stream, "writes it", state.writer, state.written);
  }
  for (std::uint32_t other = 0; access != Access::read && other < clock.size(); ++other) {
    if (const std::uint32_t read = reads_[slot * clock.size() + other]; read > clock[other]) {
      return ReportOrder(ref, access, stream, state.blank ? "may still use its memory" : "reads it", other, read);
    }
  }
}

void RoleVerifier::ReportOrder(const BufferRef& ref, Access access, std::uint32_t stream, std::string_view earlier,
                               std::uint32_t other, std::uint32_t count) {
  if (races_ != nullptr) {
    CollectRace(ref, access, stream, other, count);
  }
  if (!findings_.IsNew({Rule::unordered_access, program_.role_index, at_, ref.buffer.index})) {
    return;
  }
  Add(Rule::unordered_access, ref.buffer.index,
      fmt::format("{} is {} on {}, which has not waited for {}, where {} {}", Resolved(ref), Participle(access),
                  program_.streams[stream].name, program_.streams[other].name,
                  ShortName(program_, program_.nodes[issued_[other][count - 1].node]), earlier));
}

/// Whoever reads is told what it may not find; between two writes that is whoever wrote first.
void RoleVerifier::CollectRace(const BufferRef& ref, Access access, std::uint32_t stream, std::uint32_t other,
                               std::uint32_t count) {
  const auto slot = static_cast<std::size_t>(SlotOf(ref));
  if (races_->size() >= most_races_ || !raced_.insert({slot, other, count, at_}).second) {
    return;
  }
  const Buffer& buffer = program_.buffers[ref.buffer.index];
  const Issued& before = issued_[other][count - 1];
  const bool later_reads = access == Access::read;
  const Node& now = program_.nodes[at_];
  const std::string earlier = OperationName(program_, program_.nodes[before.node]);
  races_->push_back({.kind = Hazard::Kind::race,
                     .buffer = buffer.is_view() ? buffer.MemoryOf(MemberOf(buffer, ref, loops_)).of : ref.buffer,
                     .value = Resolved(ref),
                     .overwritten_by = later_reads ? earlier : OperationName(program_, now),
                     .read_by = later_reads ? OperationName(program_, now) : earlier,
                     .microbatch = later_reads ? microbatch_ : before.microbatch,
                     .side = later_reads ? side_ : before.side,
                     .layer = later_reads ? LayerOf(program_, now, loops_) : before.layer,
                     .read_node = later_reads ? at_ : before.node,
                     .streams = fmt::format("{}, which has not waited for {}", program_.streams[stream].name,
                                            program_.streams[other].name)});
}

void RoleVerifier::OnRecord(const Record& record) {
  Clock& clock = clocks_[record.stream.index];
  Join(clock, clocks_[0]);
  recorded_[record.event.index] = clock;
}

void RoleVerifier::OnWait(const Wait& wait) {
  const Clock& event = recorded_[wait.event.index];
  if (event.empty()) {
    return Add(Rule::wait_without_record, 0,
               fmt::format("{} was not recorded yet, so nothing waits", program_.events[wait.event.index]));
  }
  Join(clocks_[wait.stream.index], event);
}

void RoleVerifier::OnSync(const HostSync& sync) {
  for (std::uint32_t stream = 0; stream < clocks_.size(); ++stream) {
    if (!sync.stream.valid() || sync.stream.index == stream) {
      Join(clocks_[0], clocks_[stream]);
    }
  }
}

void RoleVerifier::OnBegin(const Begin& begin) {
  phases_.push_back(begin.phase);
  microbatch_ = Resolve(begin.microbatch, loops_);
  side_ = begin.side;
}

void RoleVerifier::OnEnd(const End& end) {
  if (phases_.empty() || phases_.back() != end.phase) {
    Add(Rule::unbalanced_phase, 0,
        fmt::format("{} ends, but the innermost open phase is {}", Name(end.phase),
                    phases_.empty() ? "none" : Name(phases_.back())));
  } else {
    phases_.pop_back();
  }
}

void RoleVerifier::OnCollective(const Collective& collective) {
  const Group& group = program_.groups[collective.group.index];
  if (SpansRoles(group)) {
    traffic_.collectives[group.name].push_back(&collective);
  }
}

void RoleVerifier::CheckEnd() {
  for (const Phase phase : phases_) {
    findings_.Add({Rule::unbalanced_phase, program_.role_index, program_.nodes.size(), static_cast<std::size_t>(phase)},
                  fmt::format("{}: phase {} begins and never ends", program_.role, Name(phase)));
  }
  for (std::uint32_t family = 0; family < program_.buffers.size(); ++family) {
    for (std::int64_t index = 0; !program_.buffers[family].is_view() && index < program_.buffers[family].count();
         ++index) {
      CheckSurvivor(family, index);
    }
  }
}

void RoleVerifier::CheckSurvivor(std::uint32_t family, std::int64_t index) {
  const Buffer& buffer = program_.buffers[family];
  const bool alive = states_[first_slot_[family] + static_cast<std::size_t>(index)].alive;
  if (alive == buffer.kept) {
    return;
  }
  const auto constant = [](std::int64_t value) { return Index{.loop = {}, .offset = value}; };
  const BufferRef ref{BufferId{family}, {constant(index / buffer.extents[1]), constant(index % buffer.extents[1])}};
  findings_.Add({alive ? Rule::never_freed : Rule::not_kept, program_.role_index, program_.nodes.size(), family},
                fmt::format("{}: {} is {} when the step ends", program_.role, Print(program_, ref),
                            alive ? "still allocated" : "kept, but not allocated"));
}

/// Negative when the index is outside the family.
std::int64_t RoleVerifier::SlotOf(const BufferRef& ref) const {
  const Buffer& buffer = program_.buffers[ref.buffer.index];
  const std::int64_t first = Resolve(ref.index[0], loops_);
  const std::int64_t second = Resolve(ref.index[1], loops_);
  if (first < 0 || first >= buffer.extents[0] || second < 0 || second >= buffer.extents[1]) {
    return -1;
  }
  const std::int64_t member = first * buffer.extents[1] + second;
  if (buffer.is_view()) {
    return static_cast<std::int64_t>(first_slot_[buffer.MemoryOf(member).of.index]);
  }
  return static_cast<std::int64_t>(first_slot_[ref.buffer.index]) + member;
}

std::string RoleVerifier::Resolved(const BufferRef& ref) const {
  const auto constant = [&](const Index& index) { return Index{.loop = {}, .offset = Resolve(index, loops_)}; };
  return Print(program_, BufferRef{ref.buffer, {constant(ref.index[0]), constant(ref.index[1])}});
}

void RoleVerifier::Add(Rule rule, std::size_t buffer, std::string message) {
  findings_.Add({rule, program_.role_index, at_, buffer},
                fmt::format("{}: {}", DescribeNode(program_, at_, loops_), message));
}

}  // namespace tidemark
