// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/declare.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "profiler/execute/contents.h"
#include "profiler/execute/operation.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

using kernels::TensorType;

Bytes BytesOf(const TensorType& type) { return SizeOf(type.dtype) * type.elements; }

std::string TextOf(const TensorType& type) { return fmt::format("{} x {}", type.elements, Name(type.dtype)); }

class Declarer {
 public:
  Declarer(const Job& job, const Model& model, const Program& program, bool exact)
      : job_(job), model_(model), program_(program), exact_(exact) {
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(slots_.size());
      slots_.resize(slots_.size() + static_cast<std::size_t>(buffer.count()));
      for (std::int64_t i = 0; buffer.resident && !buffer.is_view() && i < buffer.count(); ++i) {
        slots_[first_slot_.back() + static_cast<std::size_t>(i)].type =
            ResidentType(job, model, buffer, i / buffer.extents[1], exact);
      }
    }
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
    bool written = false;
    std::optional<std::size_t> allocation;
  };
  using Loops = std::span<const std::int64_t>;

  static Error Fault(std::string_view what, std::string_view hint) {
    return {ErrorCode::internal, "", std::string(what), std::string(hint)};
  }

  std::size_t EndOf(std::size_t buffer) const {
    return buffer + 1 < first_slot_.size() ? first_slot_[buffer + 1] : slots_.size();
  }

  Slot& SlotOf(const BufferRef& ref, Loops loops) {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    const std::int64_t at = Resolve(ref.index[0], loops) * buffer.extents[1] + Resolve(ref.index[1], loops);
    return slots_[first_slot_[ref.buffer.index] + static_cast<std::size_t>(at)];
  }

  std::vector<Operand> Operands(std::span<const BufferRef> refs, Loops loops) {
    std::vector<Operand> operands;
    for (const BufferRef& ref : refs) {
      operands.push_back(
          {{SlotOf(ref, loops).type, nullptr}, &program_.buffers[ref.buffer.index], Resolve(ref.index[0], loops), ref});
    }
    return operands;
  }

  Status CheckResidents() const {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      const TensorType expected{Stored(buffer.dtype, exact_), buffer.elements};
      if (buffer.resident && !buffer.is_view() && slots_[first_slot_[b]].type != expected) {
        return Fault(fmt::format("the job has {} for '{}', for which the program has a buffer of {}",
                                 TextOf(slots_[first_slot_[b]].type), buffer.name, TextOf(expected)),
                     "the program is wrong: please report the job");
      }
    }
    return Done{};
  }

  Status Make(const BufferRef& ref, Loops loops, const TensorType& type, std::string_view who) {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    const TensorType expected{Stored(buffer.dtype, exact_), buffer.elements};
    if (type != expected) {
      return Fault(fmt::format("'{}' makes '{}' of {}, for which the program has a buffer of {}", who, buffer.name,
                               TextOf(type), TextOf(expected)),
                   "the program is wrong, or the kernel: please report the job");
    }
    Slot& slot = SlotOf(ref, loops);
    slot.type = type;
    slot.written = true;
    Slot& memory = buffer.is_view() ? slots_[first_slot_[buffer.base.index]] : slot;
    memory.written = true;
    if (memory.allocation && BytesOf(declared_.allocations[*memory.allocation]) < BytesOf(type)) {
      declared_.allocations[*memory.allocation] = type;  // a block is as large as the largest view of it
    }
    return Done{};
  }

  Status See(const Alloc& leaf, Loops loops) {
    Slot& slot = SlotOf(leaf.buffer, loops);
    slot = {};
    slot.allocation = declared_.allocations.size();
    declared_.allocations.push_back({DType::fp32, 0});
    return Done{};
  }

  /// What is a placeholder in the real system as well has the size that the program gives it.
  Status CheckWritten(const Buffer& buffer, const Slot& slot) {
    if (!slot.allocation || slot.written) {
      return Done{};
    }
    if (buffer.category == Category::workspace) {
      declared_.allocations[*slot.allocation] = {Stored(buffer.dtype, exact_), buffer.elements};
      return Done{};
    }
    return Fault(fmt::format("'{}' is allocated, and no kernel writes it", buffer.name),
                 "the program is wrong: please report the job");
  }

  Status See(const Free& leaf, Loops loops) {
    Slot& slot = SlotOf(leaf.buffer, loops);
    TIDEMARK_TRY(CheckWritten(program_.buffers[leaf.buffer.buffer.index], slot));
    slot = {};
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
    const OperationContext context{
        .job = job_, .model = model_, .name = name, .op = leaf.op, .reads = reads, .writes = writes, .exact = exact_};
    TIDEMARK_ASSIGN(const Operation operation, Bind(context));
    if (operation.outputs.size() != writes.size()) {
      return Fault(fmt::format("'{}' makes {} tensors, for which the program has {} buffers", name,
                               operation.outputs.size(), writes.size()),
                   "the program is wrong, or the kernel: please report the job");
    }
    for (std::size_t i = 0; i < writes.size(); ++i) {
      TIDEMARK_TRY(Make(leaf.writes[i], loops, operation.outputs[i], name));
    }
    return Done{};
  }

  Status See(const Collective& leaf, Loops loops) {
    const std::string& name = program_.names[leaf.name.index];
    const std::int64_t ranks = program_.groups[leaf.group.index].size;
    const bool exchanges = leaf.kind == CollectiveKind::all_reduce || leaf.kind == CollectiveKind::all_gather ||
                           leaf.kind == CollectiveKind::reduce_scatter;
    if (!exchanges || leaf.reads.size() != leaf.writes.size() ||
        (leaf.reads.size() > 1 && leaf.kind != CollectiveKind::all_reduce)) {
      return NotExecuted(fmt::format("'{}', {} over {} buffers", name, Name(leaf.kind), leaf.reads.size()));
    }
    const std::string& group = program_.groups[leaf.group.index].name;
    if ((group == "tp" ? job_.layout.tp : group == "dp" ? job_.layout.dp : 0) != ranks) {
      return NotExecuted(fmt::format("'{}', a collective over the group '{}' of {} ranks", name, group, ranks));
    }
    if (leaf.dtype == DType::fp16 || leaf.payload_elements > INT32_MAX) {
      return NotExecuted(fmt::format("'{}', a collective over {} x {}", name, leaf.payload_elements, Name(leaf.dtype)));
    }
    TIDEMARK_TRY(CheckReads(leaf.reads, loops, name));
    std::int64_t payload = 0;
    for (std::size_t i = 0; i < leaf.writes.size(); ++i) {
      TensorType type = SlotOf(leaf.reads[i], loops).type;
      payload += type.elements;
      if (leaf.reads[i] != leaf.writes[i] && leaf.kind == CollectiveKind::all_gather) {
        type.elements *= ranks;
        payload = type.elements;
      } else if (leaf.kind == CollectiveKind::reduce_scatter) {
        type.elements /= ranks;
      }
      if (type.dtype != Stored(leaf.dtype, exact_)) {
        return Fault(fmt::format("'{}' sends {}, and its buffer holds {}", name, Name(leaf.dtype), Name(type.dtype)),
                     "the program is wrong: please report the job");
      }
      TIDEMARK_TRY(Make(leaf.writes[i], loops, type, name));
    }
    if (payload != leaf.payload_elements) {
      return Fault(fmt::format("'{}' sends {} elements, and its buffers hold {}", name, leaf.payload_elements, payload),
                   "the program is wrong: please report the job");
    }
    return Done{};
  }

  Status See(const Copy& leaf, Loops loops) {
    const std::string& name = program_.names[leaf.name.index];
    if (name != "load.ids" && name != "load.labels") {
      return NotExecuted(fmt::format("'{}', a copy between host and device", name));
    }
    const TensorType ids{DType::int64, job_.micro_batch_size * job_.sequence_length};
    for (const BufferRef& ref : leaf.writes) {
      TIDEMARK_TRY(Make(ref, loops, ids, name));
    }
    return Done{};
  }

  template <class Other>
  Status See(const Other&, Loops) {
    return Done{};
  }

  const Job& job_;
  const Model& model_;
  const Program& program_;
  bool exact_;
  std::vector<std::size_t> first_slot_;
  std::vector<Slot> slots_;
  DeclaredTypes declared_;
};

}  // namespace

TensorType ResidentType(const Job& job, const Model& model, const Buffer& buffer, std::int64_t index, bool exact) {
  TensorType type{buffer.dtype, buffer.elements};
  if (const auto contents = ContentsOf(model, buffer, index)) {
    type = StateType(job, buffer, *contents);
  }
  return {Stored(type.dtype, exact), type.elements};
}

Result<DeclaredTypes> DeclareTypes(const Job& job, const Model& model, const Program& program, bool exact) {
  return Declarer(job, model, program, exact).All();
}

}  // namespace tidemark
