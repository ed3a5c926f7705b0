// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/declare.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "profiler/execute/contents.h"
#include "profiler/execute/exchanged_part.h"
#include "profiler/execute/host_copy.h"
#include "profiler/execute/joint.h"
#include "profiler/execute/link_copy.h"
#include "profiler/execute/loss_chunk.h"
#include "profiler/execute/messages.h"
#include "profiler/execute/operation.h"
#include "profiler/execute/rank_groups.h"
#include "profiler/execute/rotary_tables.h"
#include "sim/program/layers.h"
#include "sim/program/slices.h"
#include "sim/program/stages.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

using kernels::TensorType;

Bytes BytesOf(const TensorType& type) { return SizeOf(type.dtype) * type.elements; }

std::string TextOf(const TensorType& type) { return fmt::format("{} x {}", type.elements, Name(type.dtype)); }

class Declarer {
 public:
  Declarer(const Job& job, const Model& model, const Program& program, bool exact)
      : job_(job), model_(model), program_(program), exact_(exact), normed_(model, program) {
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(slots_.size());
      slots_.resize(slots_.size() + static_cast<std::size_t>(buffer.count()));
      for (std::int64_t i = 0; buffer.resident && i < buffer.count(); ++i) {
        Slot& slot = slots_[first_slot_.back() + static_cast<std::size_t>(i)];
        slot.type = ResidentType(job, model, buffer, i / buffer.extents[1], exact);
        slot.alive = true;
      }
      for (std::size_t i = 0; i < buffer.slices.size(); ++i) {
        slots_[first_slot_.back() + i].type =
            program.buffers[buffer.slices[i].of.index].resident ? TypeOf(buffer) : Slot().type;
      }
    }
    slices_ = SlicesByWhole(program, first_slot_);
  }

  Result<DeclaredTypes> All() {
    TIDEMARK_TRY(CheckResidents());
    std::optional<Error> error;
    ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
      const Status done = std::visit([&](const auto& leaf) { return See(leaf, loops); }, program_.nodes[at]);
      if (!done) {
        error = done.error();
      }
      return done.ok();
    });
    if (error) {
      return *error;
    }
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      for (std::size_t slot = first_slot_[b]; slot < EndOf(b); ++slot) {
        TIDEMARK_TRY(CheckWritten(program_.buffers[b], slots_[slot]));
      }
    }
    return std::move(declared_);
  }

 private:
  struct Slot {
    TensorType type{DType::fp32, 0};
    bool alive = false, written = false;
    std::optional<std::size_t> allocation;
    std::shared_ptr<const Contents> packed;
  };
  using Loops = std::span<const std::int64_t>;

  static Error Fault(std::string_view what, std::string_view hint) {
    return {ErrorCode::internal, "", std::string(what), std::string(hint)};
  }

  TensorType TypeOf(const Buffer& buffer) const { return {Stored(buffer.dtype, exact_), buffer.elements}; }

  std::size_t EndOf(std::size_t buffer) const {
    return buffer + 1 < first_slot_.size() ? first_slot_[buffer + 1] : slots_.size();
  }

  Slot& SlotOf(const BufferRef& ref, Loops loops) {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    return slots_[first_slot_[ref.buffer.index] + static_cast<std::size_t>(MemberOf(buffer, ref, loops))];
  }

  std::vector<Operand> Operands(std::span<const BufferRef> refs, Loops loops) {
    std::vector<Operand> operands;
    for (const BufferRef& ref : refs) {
      const Slot& slot = SlotOf(ref, loops);
      operands.push_back({{slot.type, nullptr},
                          &program_.buffers[ref.buffer.index],
                          Resolve(ref.index[0], loops),
                          ref,
                          slot.packed,
                          &contents_});
    }
    return operands;
  }

  Status CheckResidents() const {
    const bool divided = job_.axes.shard.optimizer && model_.shards() > 1;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (divided && buffer.category == Category::optimizer && buffer.holds.empty()) {
        return NotExecuted(fmt::format(
            "parts of the optimizer's state that have no known place: '{}' (shard.optimizer)", buffer.name));
      }
      const TensorType expected = TypeOf(buffer);
      if (buffer.resident && slots_[first_slot_[b]].type != expected) {
        return Fault(fmt::format("the job has {} for '{}', for which the program has a buffer of {}",
                                 TextOf(slots_[first_slot_[b]].type), buffer.name, TextOf(expected)),
                     "the program is wrong: please report the job");
      }
    }
    return Done{};
  }

  Status Make(const BufferRef& ref, Loops loops, const TensorType& type, std::string_view who) {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    const TensorType expected = TypeOf(buffer);
    if (type != expected) {
      return Fault(fmt::format("'{}' makes '{}' of {}, for which the program has a buffer of {}", who, buffer.name,
                               TextOf(type), TextOf(expected)),
                   "the program is wrong, or the kernel: please report the job");
    }
    Slot& slot = SlotOf(ref, loops);
    Slot& memory =
        buffer.is_view() ? slots_[first_slot_[buffer.MemoryOf(MemberOf(buffer, ref, loops)).of.index]] : slot;
    if (!memory.alive) {
      return Fault(fmt::format("'{}' writes '{}', which has no memory", who, buffer.name),
                   "the program is wrong: please report the job");
    }
    slot.type = type;
    slot.written = true;
    memory.written = true;
    if (memory.allocation && BytesOf(declared_.allocations[*memory.allocation]) < BytesOf(type)) {
      declared_.allocations[*memory.allocation] = type;  // a block is as large as the largest view of it
    }
    return Done{};
  }

  Status See(const Alloc& leaf, Loops loops) {
    Slot& slot = SlotOf(leaf.buffer, loops);
    slot = {};
    slot.alive = true;
    slot.allocation = declared_.allocations.size();
    // What has slices is as large as the program says; all else as what is written there.
    const BufferId id = leaf.buffer.buffer;
    declared_.allocations.push_back(slices_[id.index].empty() ? TensorType{DType::fp32, 0}
                                                              : TypeOf(program_.buffers[id.index]));
    return Done{};
  }

  /// What is a placeholder in the real system as well, as a bucket that is rebuilt behind its last use, has the size
  /// that the program gives it. A copy of the model's state that nobody touches (of a conditional's other branch; of an
  /// executable that returns what it does not donate, which here stays where it was) has that of what it would hold.
  Status CheckWritten(const Buffer& buffer, const Slot& slot) {
    if (!slot.allocation || slot.written) {
      return Done{};
    }
    if (const auto contents = ContentsOf(model_, buffer, 0)) {
      const TensorType type = StateType(job_, buffer, *contents);
      declared_.allocations[*slot.allocation] = {Stored(type.dtype, exact_), type.elements};
      return Done{};
    }
    if (buffer.category == Category::workspace || buffer.category == Category::rng ||
        buffer.category == Category::bucket) {
      declared_.allocations[*slot.allocation] = TypeOf(buffer);
      return Done{};
    }
    return Fault(fmt::format("'{}' is allocated, and no kernel writes it", buffer.name),
                 "the program is wrong: please report the job");
  }

  Status See(const Free& leaf, Loops loops) {
    Slot& slot = SlotOf(leaf.buffer, loops);
    TIDEMARK_TRY(CheckWritten(program_.buffers[leaf.buffer.buffer.index], slot));
    slot = {};
    for (const std::size_t slice : slices_[leaf.buffer.buffer.index]) {
      slots_[slice] = {};
    }
    return Done{};
  }

  Status CheckReads(std::span<const BufferRef> reads, Loops loops, std::string_view who) {
    for (const BufferRef& ref : reads) {
      if (SlotOf(ref, loops).type.elements == 0) {
        return Fault(fmt::format("'{}' reads '{}', which no kernel has written or which is freed already", who,
                                 program_.buffers[ref.buffer.index].name),
                     "the program is wrong: please report the job");
      }
    }
    return Done{};
  }

  Status See(const Compute& leaf, Loops loops) {
    const std::string& name = program_.names[leaf.name.index];
    TIDEMARK_TRY(CheckReads(leaf.reads, loops, name));
    const std::vector<Operand> reads = Operands(leaf.reads, loops), writes = Operands(leaf.writes, loops);
    OperationContext context{.job = job_,
                             .model = model_,
                             .normed = normed_,
                             .name = WithoutKept(WithoutStage(name)),
                             .op = leaf.op,
                             .reads = reads,
                             .writes = writes,
                             .exact = exact_};
    context.share = {0, job_.layout.cp, job_.sequence_length};
    context.own_part = leaf.own_part;
    context.turn = TurnOf(program_, loops);
    context.block = BlockOf(program_, leaf, model_, loops);
    TIDEMARK_ASSIGN(const Operation operation, Bind(context));
    if (operation.outputs.size() != writes.size()) {
      return Fault(fmt::format("'{}' makes {} tensors, for which the program has {} buffers", name,
                               operation.outputs.size(), writes.size()),
                   "the program is wrong, or the kernel: please report the job");
    }
    for (std::size_t i = 0; i < writes.size(); ++i) {
      TIDEMARK_TRY(Make(leaf.writes[i], loops, operation.outputs[i], name));
    }
    if (operation.packed) {
      SlotOf(leaf.writes.front(), loops).packed = operation.packed;
    }
    return Done{};
  }

  Status See(const Collective& leaf, Loops loops) {
    const std::string& name = program_.names[leaf.name.index];
    const std::int64_t ranks = program_.groups[leaf.group.index].size;
    const bool shifts = IsShift(leaf.kind);
    const bool exchanges = shifts || leaf.kind == CollectiveKind::all_reduce ||
                           leaf.kind == CollectiveKind::all_gather || leaf.kind == CollectiveKind::reduce_scatter ||
                           leaf.kind == CollectiveKind::all_to_all;
    const bool in_place = IsInPlace(program_, leaf), joint = IsJoint(program_, leaf);
    if (!exchanges || leaf.reads.size() != leaf.writes.size() ||
        (leaf.reads.size() > 1 && leaf.kind != CollectiveKind::all_reduce && !in_place && !shifts)) {
      return NotExecuted(fmt::format("'{}', {} over {} buffers", name, Name(leaf.kind), leaf.reads.size()));
    }
    const std::string& group = program_.groups[leaf.group.index].name;
    if (const auto found = groups_.find(group); found == groups_.end() || found->second.size != ranks) {
      return NotExecuted(fmt::format("'{}', a collective over the group '{}' of {} ranks", name, group, ranks));
    }
    TIDEMARK_TRY(CheckSendable(name, {Stored(leaf.dtype, exact_), leaf.payload_elements}));
    TIDEMARK_TRY(CheckReads(leaf.reads, loops, name));
    const std::vector<Operand> reads = Operands(leaf.reads, loops), writes = Operands(leaf.writes, loops);
    std::int64_t payload = 0;
    for (std::size_t i = 0; i < leaf.writes.size(); ++i) {
      const Slot& from = SlotOf(leaf.reads[i], loops);
      TensorType type = from.type;
      payload += from.packed ? from.packed->elements : type.elements;
      if (joint) {
        continue;
      }
      if (leaf.kind == CollectiveKind::all_gather) {
        if (const auto part = PartToGather(model_, reads[i], writes[i], ranks)) {
          type.elements = part->type.elements;
        }
      }
      const bool sends_part_of_whole = type.elements == leaf.payload_elements;
      if (!in_place && leaf.kind == CollectiveKind::all_gather && !sends_part_of_whole) {
        type.elements *= ranks;
        payload = type.elements;
      } else if (!in_place && leaf.kind == CollectiveKind::reduce_scatter) {
        type.elements /= ranks;
      }
      if (type.dtype != Stored(leaf.dtype, exact_)) {
        return Fault(fmt::format("'{}' sends {}, and its buffer holds {}", name, Name(leaf.dtype), Name(type.dtype)),
                     "the program is wrong: please report the job");
      }
      TIDEMARK_TRY(Make(leaf.writes[i], loops, type, name));
      if (auto part = ScatteredPart(program_, leaf, model_, reads[i], writes[i])) {
        SlotOf(leaf.writes[i], loops).packed = std::move(part);
      }
    }
    if (joint) {
      return SeeJoint(leaf, loops, ranks);
    }
    if (payload != leaf.payload_elements) {
      return Fault(fmt::format("'{}' sends {} elements, and its buffers hold {}", name, leaf.payload_elements, payload),
                   "the program is wrong: please report the job");
    }
    return Done{};
  }

  Status SeeJoint(const Collective& leaf, Loops loops, std::int64_t ranks) {
    const std::string& name = program_.names[leaf.name.index];
    for (const BufferRef& ref : leaf.writes) {
      const TensorType type = SlotOf(ref, loops).type;
      if (type.dtype != Stored(leaf.dtype, exact_)) {
        return Fault(fmt::format("'{}' sends {}, and its buffer holds {}", name, Name(leaf.dtype), Name(type.dtype)),
                     "the program is wrong: please report the job");
      }
      TIDEMARK_TRY(Make(ref, loops, type, name));
    }
    const std::int64_t end = PlaceJointly(Operands(leaf.writes, loops)).end;
    if (end > leaf.payload_elements || leaf.payload_elements % ranks != 0) {
      return Fault(fmt::format("'{}' sends {} elements on {} ranks, and its buffers end at {}", name,
                               leaf.payload_elements, ranks, end),
                   "the program is wrong: please report the job");
    }
    return Done{};
  }

  Status See(const Copy& leaf, Loops loops) {
    if (const auto between = LinkCopy(leaf)) {
      return See(*between, loops);
    }
    const std::string& name = program_.names[leaf.name.index];
    for (const BufferRef& ref : leaf.writes) {
      TIDEMARK_ASSIGN(const TensorType type, HostCopyType(job_, model_, name, program_.buffers[ref.buffer.index]));
      TIDEMARK_TRY(Make(ref, loops, type, name));
    }
    return Done{};
  }

  Result<TensorType> TypeOfMessage(NameId name, const BufferRef& ref, Loops loops) const {
    const std::string& text = program_.names[name.index];
    TIDEMARK_ASSIGN(const TensorType type,
                    MessageType({job_, model_, WithoutStage(text), program_.buffers[ref.buffer.index],
                                 Resolve(ref.index[0], loops), exact_}));
    TIDEMARK_TRY(CheckSendable(text, type));
    return type;
  }

  Status See(const Send& leaf, Loops loops) {
    const std::string& name = program_.names[leaf.name.index];
    TIDEMARK_TRY(CheckReads(std::span(&leaf.buffer, 1), loops, name));
    TIDEMARK_ASSIGN(const TensorType expected, TypeOfMessage(leaf.name, leaf.buffer, loops));
    const TensorType found = SlotOf(leaf.buffer, loops).type;
    if (found != expected) {
      return Fault(
          fmt::format("'{}' sends {}, where the other stage expects {}", name, TextOf(found), TextOf(expected)),
          "the program is wrong, or the kernel: please report the job");
    }
    return Done{};
  }

  Status See(const Recv& leaf, Loops loops) {
    TIDEMARK_ASSIGN(const TensorType type, TypeOfMessage(leaf.name, leaf.buffer, loops));
    return Make(leaf.buffer, loops, type, program_.names[leaf.name.index]);
  }

  template <class Other>
  Status See(const Other&, Loops) {
    return Done{};
  }

  const Job& job_;
  const Model& model_;
  const Program& program_;
  bool exact_;
  std::map<std::string, RankGroup, std::less<>> groups_ = RankGroupsOf(job_, 0);
  NormedTensors normed_;
  ContentsTable contents_;
  std::vector<std::size_t> first_slot_;
  std::vector<std::vector<std::size_t>> slices_;  ///< by family: their slots
  std::vector<Slot> slots_;
  DeclaredTypes declared_;
};

}  // namespace

TensorType ResidentType(const Job& job, const Model& model, const Buffer& buffer, std::int64_t index, bool exact) {
  TensorType type{buffer.dtype, buffer.elements};
  if (const auto table = RotaryTableIn(job, model, buffer)) {
    type = RotaryTableType(*table, DType::fp32);
  } else if (const auto contents = ContentsOf(model, buffer, index)) {
    type = StateType(job, buffer, *contents);
  }
  return {Stored(type.dtype, exact), type.elements};
}

Result<DeclaredTypes> DeclareTypes(const Job& job, const Model& model, const Program& program, bool exact) {
  TIDEMARK_TRY(CheckLinkCopies(program));
  return Declarer(job, model, program, exact).All();
}

}  // namespace tidemark
