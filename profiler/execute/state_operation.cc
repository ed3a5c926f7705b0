// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/moved_part.h"
#include "profiler/execute/operation.h"
#include "profiler/execute/state_rows.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Tensor;
using kernels::TensorType;
using Writes = std::span<const kernels::Tensor>;

class StateBinder {
 public:
  explicit StateBinder(const OperationContext& context) : c_(context) {}

  Result<Operation> Bind() const {
    if (c_.writes.empty()) {
      return Operation{{}, [](Writes, const Queue&) {}};  // a launch; an update whose result is masked
    }
    if (std::holds_alternative<OptimizerUpdate>(c_.op) || AppliesMoments()) {
      return BindUpdate(c_);
    }
    for (const StateRow& row : kStateRows) {
      if (row.name == c_.name) {
        return Do(row.does);
      }
    }
    return NotExecuted(fmt::format("'{}'", c_.name));
  }

 private:
  /// Unlike optax.apply_updates, which adds what has been made of them.
  bool AppliesMoments() const {
    return c_.name == kApplyUpdate &&
           std::any_of(c_.reads.begin(), c_.reads.end(), [](const Operand& read) { return IsMoments(*read.buffer); });
  }

  Result<std::shared_ptr<const Contents>> Of(const Operand& operand) const { return KnownContents(c_, operand); }

  Result<Operation> Do(Does does) const {
    switch (does) {
      case Does::copy:
        return ContentsOf(c_.model, c_.writes[0]) || !c_.writes[0].buffer->holds.empty() ? Move(does)
                                                                                         : Pack(std::nullopt);
      case Does::pack:
        return SaidContents(c_.model, c_.writes[0]) ? Move(does) : Pack(c_.job.axes.sync.bucket_elements);
      case Does::add:
      case Does::take:
      case Does::add_taken:
        return Move(does);
      case Does::add_alike:
        return AddAlike();
      case Does::interleave:
        return Interleave();
      case Does::scale:
        return Scale();
      case Does::zero:
        return Zero();
      case Does::own_rows:
        return OwnRows();
    }
    TIDEMARK_CHECK(false && "an unknown movement");
  }

  /// Of what operations have put into a buffer, no more.
  Operation Scale() const {
    Operation operation;
    std::vector<std::int64_t> elements;
    for (const Operand& write : c_.writes) {
      operation.outputs.push_back(write.tensor.type);
      elements.push_back(write.packed ? write.packed->elements : write.tensor.type.elements);
    }
    operation.run = [elements = std::move(elements), scale = c_.scale](Writes writes, const Queue& queue) {
      for (std::size_t w = 0; w < writes.size(); ++w) {
        on::Scale(queue, scale, kernels::Slice(writes[w], 0, elements[w]));
      }
    };
    return operation;
  }

  /// Of a buffer that does not say what it holds, all of it.
  Result<Operation> Zero() const {
    std::vector<TensorType> types;
    for (const Operand& write : c_.writes) {
      const auto contents = SaidContents(c_.model, write);
      const TensorType type = contents ? StateType(c_.job, *write.buffer, *contents)
                                       : TensorType{write.buffer->dtype, write.buffer->elements};
      types.push_back({c_.Stored(type.dtype), type.elements});
    }
    return Operation{std::move(types), [](Writes writes, const Queue& queue) {
                       for (const Tensor& write : writes) {
                         on::Zero(queue, write);
                       }
                     }};
  }

  /// Of each sample, the rows of both of this rank's stretches.
  Operation OwnRows() const {
    const ConstTensor whole = c_.Read(0);
    const SequenceShare share = c_.share;
    const std::int64_t samples = c_.model.samples(), half = share.tokens() / 2;
    return {{{whole.type.dtype, samples * share.tokens() * share.sequence}}, [=](Writes writes, const Queue& queue) {
              for (std::int64_t row = 0; row < samples * share.tokens(); row += half) {
                const std::int64_t sample = row / share.tokens(), place = share.PlaceOf(row % share.tokens());
                const std::int64_t from = (sample * share.sequence + place) * share.sequence;
                on::Copy(queue, kernels::Slice(whole, from, half * share.sequence),
                         kernels::Slice(writes[0], row * share.sequence, half * share.sequence));
              }
            }};
  }

  Result<Operation> AddAlike() const {
    if (c_.writes.size() != 1 || !c_.Adds(0) || c_.Read(0).type.elements != c_.writes[0].tensor.type.elements) {
      return NotExecuted(fmt::format("'{}'", c_.name));
    }
    const ConstTensor read = c_.Read(0);
    return Operation{{c_.writes[0].tensor.type},
                     [read](Writes writes, const Queue& queue) { on::Accumulate(queue, read, writes[0], 1); }};
  }

  /// What reads and writes share. Fails where that is neither all that is read nor all that is written: a movement
  /// takes a part out of something, or puts one into it.
  Result<std::vector<MovedPart>> Parts(bool any) const {
    std::vector<MovedPart> parts;
    std::int64_t read = 0, written = 0, moved = 0;
    std::vector<std::shared_ptr<const Contents>> writes;
    for (const Operand& write : c_.writes) {
      TIDEMARK_ASSIGN(auto contents, Of(write));
      written += NumbersOf(*contents);
      writes.push_back(std::move(contents));
    }
    for (std::size_t r = 0; r < c_.reads.size(); ++r) {
      if (IsWritten(c_.reads[r])) {
        continue;
      }
      TIDEMARK_ASSIGN(const auto contents, Of(c_.reads[r]));
      read += NumbersOf(*contents);
      for (std::size_t w = 0; w < writes.size(); ++w) {
        for (const Shared& shared : SharedBy(*contents, *writes[w])) {
          parts.push_back(
              {kernels::Slice(c_.Read(r), shared.stretch.offset, shared.stretch.elements), r, w, shared.offset});
          moved += shared.stretch.elements;
        }
      }
    }
    if (!any && moved != read && moved != written) {
      return NotExecuted(
          fmt::format("'{}', which reads {} numbers of the model, writes {} and has {} of them in common", c_.name,
                      read, written, moved));
    }
    return parts;
  }

  static std::int64_t NumbersOf(const Contents& contents) {
    std::int64_t numbers = 0;
    for (const Stretch& stretch : contents.stretches) {
      numbers += stretch.elements;
    }
    return numbers;
  }

  bool IsWritten(const Operand& read) const {
    return std::any_of(c_.writes.begin(), c_.writes.end(), [&](const Operand& write) { return write.ref == read.ref; });
  }

  Result<Operation> Move(Does does) const {
    const bool adds = does == Does::add || does == Does::add_taken;
    TIDEMARK_ASSIGN(const std::vector<MovedPart> parts, Parts(does == Does::take || does == Does::add_taken));
    Operation operation;
    TIDEMARK_ASSIGN(operation.outputs, StateTypes(c_));
    std::vector<bool> starts;
    for (std::size_t w = 0; w < c_.writes.size(); ++w) {
      starts.push_back(adds && !c_.Adds(w));
      if (c_.writes[w].packed || (adds && c_.Adds(w))) {
        operation.outputs[w] = c_.writes[w].tensor.type;
      }
    }
    operation.run = [parts = MovedParts(parts), starts = std::move(starts), adds, scale = c_.scale](
                        Writes writes, const Queue& queue) {
      for (std::size_t w = 0; w < writes.size(); ++w) {
        if (starts[w]) {
          on::Zero(queue, writes[w]);
        }
      }
      parts.Each(queue, [&](const Queue& on_queue, const MovedPart& part) {
        const Tensor to = kernels::Slice(writes[part.write], part.offset, part.from.type.elements);
        adds ? on::Accumulate(on_queue, part.from, to, scale) : on::Copy(on_queue, part.from, to, scale);
      });
    };
    return operation;
  }

  /// Numbers go one behind the other into a buffer of `elements`, or of as many as they are.
  Result<Operation> Pack(std::optional<std::int64_t> elements) const {
    if (c_.writes.size() != 1) {
      return NotExecuted(c_.name);
    }
    const Operand& write = c_.writes[0];
    auto packed = std::make_shared<Contents>();
    std::vector<MovedPart> parts;
    for (std::size_t r = 0; r < c_.reads.size(); ++r) {
      if (IsWritten(c_.reads[r]) && write.packed) {
        packed->elements += write.packed->elements;
        packed->stretches.insert(packed->stretches.begin(), write.packed->stretches.begin(),
                                 write.packed->stretches.end());
      }
    }
    for (std::size_t r = 0; r < c_.reads.size(); ++r) {
      if (IsWritten(c_.reads[r])) {
        continue;
      }
      TIDEMARK_ASSIGN(const auto contents, Of(c_.reads[r]));
      parts.push_back({kernels::Slice(c_.Read(r), contents->begin, contents->elements), r, 0, packed->elements});
      for (Stretch stretch : contents->stretches) {
        stretch.offset += packed->elements - contents->begin;
        packed->stretches.push_back(stretch);
      }
      packed->elements += contents->elements;
    }
    Operation operation;
    operation.outputs = {{c_.Stored(write.buffer->dtype), elements.value_or(packed->elements)}};
    if (operation.outputs[0].elements < packed->elements) {
      return NotExecuted(fmt::format("'{}', which puts {} numbers into '{}' of {}", c_.name, packed->elements,
                                     write.buffer->name, operation.outputs[0].elements));
    }
    operation.packed = std::move(packed);
    operation.run = Copies(parts);
    return operation;
  }

  std::function<void(Writes, const Queue&)> Copies(const std::vector<MovedPart>& parts) const {
    return [parts = MovedParts(parts), scale = c_.scale](Writes writes, const Queue& queue) {
      parts.Each(queue, [&](const Queue& on_queue, const MovedPart& part) {
        on::Copy(on_queue, part.from, kernels::Slice(writes[0], part.offset, part.from.type.elements), scale);
      });
    };
  }

  /// The first rank's parts of all parameters, then the second's. Each is as large as the largest of its parameter.
  Result<Operation> Interleave() const {
    struct Whole {
      Stretch stretch;
      std::size_t read;
      ConstTensor numbers;
    };
    std::vector<Whole> all;
    for (std::size_t r = 0; r < c_.reads.size(); ++r) {
      TIDEMARK_ASSIGN(const auto contents, Of(c_.reads[r]));
      for (const Stretch& stretch : contents->stretches) {
        if (!stretch.IsWhole()) {
          return NotExecuted(fmt::format("'{}', which reads a part of '{}'", c_.name, stretch.weight.name));
        }
        all.push_back({stretch, r, kernels::Slice(c_.Read(r), stretch.offset, stretch.elements)});
      }
    }
    const std::int64_t ranks = c_.model.shards();
    auto packed = std::make_shared<Contents>();
    std::vector<MovedPart> parts;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (const Whole& whole : all) {
        Stretch stretch = whole.stretch;
        const std::int64_t part = (stretch.elements + ranks - 1) / ranks;
        stretch.begin = std::min(rank * part, stretch.elements);
        stretch.elements = std::min(part, stretch.elements - stretch.begin);
        stretch.offset = packed->elements;
        packed->stretches.push_back(stretch);
        parts.push_back(
            {kernels::Slice(whole.numbers, stretch.begin, stretch.elements), whole.read, 0, stretch.offset});
        packed->elements += part;
      }
    }
    Operation operation;
    operation.outputs = {{c_.Stored(c_.writes[0].buffer->dtype), packed->elements}};
    operation.packed = std::move(packed);
    operation.run = Copies(parts);
    return operation;
  }

  const OperationContext& c_;
};

}  // namespace

Result<Operation> BindStateOperation(const OperationContext& context) { return StateBinder(context).Bind(); }

}  // namespace tidemark
