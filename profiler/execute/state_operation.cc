// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
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
      return Operation{{}, [](Writes) {}};  // a launch; an update whose result is masked
    }
    if (std::holds_alternative<OptimizerUpdate>(c_.op)) {
      return Update();
    }
    for (const StateRow& row : kStateRows) {
      if (row.name == c_.name) {
        return Do(row.does);
      }
    }
    return NotExecuted(c_.name);
  }

 private:
  Result<Contents> Of(const Operand& operand) const {
    if (auto contents = ContentsOf(c_.model, operand)) {
      return std::move(*contents);
    }
    return NotExecuted(fmt::format("'{}', whose numbers in '{}' have no known place", c_.name, operand.buffer->name));
  }

  /// Types of all writes, as the job has them.
  Result<std::vector<TensorType>> StateTypes() const {
    std::vector<TensorType> types;
    for (const Operand& write : c_.writes) {
      TIDEMARK_ASSIGN(const Contents contents, Of(write));
      const TensorType type = StateType(c_.job, *write.buffer, contents);
      types.push_back({c_.Stored(type.dtype), type.elements});
    }
    return types;
  }

  Result<Operation> Do(Does does) const {
    switch (does) {
      case Does::copy:
        return ContentsOf(c_.model, c_.writes[0]) || !c_.writes[0].buffer->holds.empty() ? Move(does)
                                                                                         : Pack(std::nullopt);
      case Does::pack:
        return SaysWhatItHolds(c_, c_.writes[0]) ? Move(does) : Pack(c_.job.axes.sync.bucket_elements);
      case Does::add:
      case Does::take:
        return Move(does);
      case Does::scale:
        return Scale();
      case Does::zero:
        return Zero();
    }
    TIDEMARK_CHECK(false && "an unknown movement");
  }

  static bool SaysWhatItHolds(const OperationContext& c, const Operand& operand) {
    return ContentsOf(c.model, *operand.buffer, operand.index).has_value();
  }

  /// Of what operations have put into a buffer, no more.
  Operation Scale() const {
    Operation operation;
    std::vector<std::int64_t> elements;
    for (const Operand& write : c_.writes) {
      operation.outputs.push_back(write.tensor.type);
      elements.push_back(write.packed ? write.packed->elements : write.tensor.type.elements);
    }
    operation.run = [elements = std::move(elements), scale = c_.scale](Writes writes) {
      for (std::size_t w = 0; w < writes.size(); ++w) {
        kernels::Scale(scale, Slice(writes[w], 0, elements[w]));
      }
    };
    return operation;
  }

  Result<Operation> Zero() const {
    TIDEMARK_ASSIGN(std::vector<TensorType> types, StateTypes());
    return Operation{std::move(types), [](Writes writes) {
                       for (const Tensor& write : writes) {
                         kernels::Zero(write);
                       }
                     }};
  }

  /// Numbers of a read that a write is to have as well.
  struct Part {
    ConstTensor from;
    std::size_t write = 0;
    std::int64_t offset = 0;
  };

  /// What reads and writes share. Fails where that is neither all that is read nor all that is written: a movement
  /// takes a part out of something, or puts one into it.
  Result<std::vector<Part>> Parts(bool any) const {
    std::vector<Part> parts;
    std::int64_t read = 0, written = 0, moved = 0;
    std::vector<Contents> writes;
    for (const Operand& write : c_.writes) {
      TIDEMARK_ASSIGN(Contents contents, Of(write));
      written += NumbersOf(contents);
      writes.push_back(std::move(contents));
    }
    for (std::size_t r = 0; r < c_.reads.size(); ++r) {
      if (IsWritten(c_.reads[r])) {
        continue;
      }
      TIDEMARK_ASSIGN(const Contents contents, Of(c_.reads[r]));
      read += NumbersOf(contents);
      for (std::size_t w = 0; w < writes.size(); ++w) {
        for (const Shared& shared : SharedBy(contents, writes[w])) {
          parts.push_back({Slice(c_.Read(r), shared.stretch.offset, shared.stretch.elements), w, shared.offset});
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
    const bool adds = does == Does::add;
    TIDEMARK_ASSIGN(std::vector<Part> parts, Parts(does == Does::take));
    Operation operation;
    TIDEMARK_ASSIGN(operation.outputs, StateTypes());
    std::vector<bool> starts;
    for (std::size_t w = 0; w < c_.writes.size(); ++w) {
      starts.push_back(adds && !c_.Adds(w));
      if (c_.writes[w].packed || (adds && c_.Adds(w))) {
        operation.outputs[w] = c_.writes[w].tensor.type;
      }
    }
    operation.run = [parts = std::move(parts), starts = std::move(starts), adds, scale = c_.scale](Writes writes) {
      for (std::size_t w = 0; w < writes.size(); ++w) {
        if (starts[w]) {
          kernels::Zero(writes[w]);
        }
      }
      for (const Part& part : parts) {
        const Tensor to = Slice(writes[part.write], part.offset, part.from.type.elements);
        adds ? kernels::Accumulate(part.from, to, scale) : kernels::Copy(part.from, to, scale);
      }
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
    std::vector<Part> parts;
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
      TIDEMARK_ASSIGN(const Contents contents, Of(c_.reads[r]));
      parts.push_back({Slice(c_.Read(r), 0, contents.elements), 0, packed->elements});
      for (Stretch stretch : contents.stretches) {
        stretch.offset += packed->elements;
        packed->stretches.push_back(stretch);
      }
      packed->elements += contents.elements;
    }
    Operation operation;
    operation.outputs = {{c_.Stored(write.buffer->dtype), elements.value_or(packed->elements)}};
    if (operation.outputs[0].elements < packed->elements) {
      return NotExecuted(fmt::format("'{}', which puts {} numbers into '{}' of {}", c_.name, packed->elements,
                                     write.buffer->name, operation.outputs[0].elements));
    }
    operation.packed = std::move(packed);
    operation.run = [parts = std::move(parts), scale = c_.scale](Writes writes) {
      for (const Part& part : parts) {
        kernels::Copy(part.from, Slice(writes[0], part.offset, part.from.type.elements), scale);
      }
    };
    return operation;
  }

  // One update of one parameter, in pieces: its gradient, what is updated, and its moments.
  struct Piece {
    ConstTensor gradient;
    Tensor updated;
    std::vector<Tensor> copies;  ///< weights that are cast from it
    std::vector<Tensor> moments;
    std::optional<ConstTensor> weights;  ///< `updated` is to be the change of these, which are left as they are
  };

  static bool IsGradient(const Buffer& buffer) {
    return buffer.category == Category::gradient || buffer.category == Category::accumulator ||
           buffer.category == Category::bucket;
  }
  /// State that is not there before: neither moments nor what is updated, but the update itself (optax's tree of them).
  bool IsChange(std::size_t write) const {
    return c_.writes[write].buffer->category == Category::optimizer && !c_.Adds(write);
  }

  Result<Operation> Update() const;
  Result<std::vector<Piece>> PiecesOf(const Operand& gradient, std::span<const TensorType> types) const;
  Result<ConstTensor> WeightsOf(const Stretch& stretch) const;
  Status CheckPiece(const Piece& piece, std::string_view weight) const;

  const OperationContext& c_;
};

/// Each gradient's parameters, and where they lie in what is written: masters and weights, or weights alone, and the
/// moments of either. What this rank does not update has no piece.
Result<std::vector<StateBinder::Piece>> StateBinder::PiecesOf(const Operand& gradient,
                                                              std::span<const TensorType> types) const {
  using Key = std::tuple<std::string, std::int64_t, std::int64_t>;
  std::map<Key, Piece> pieces;
  TIDEMARK_ASSIGN(Contents contents, Of(gradient));
  if (c_.own_part) {
    const auto is_state = [](const Operand& write) { return write.buffer->category == Category::optimizer; };
    if (std::none_of(c_.writes.begin(), c_.writes.end(), is_state)) {
      return NotExecuted(fmt::format("'{}' of a rank's part, without state that tells which", c_.name));
    }
    contents = UpdatedPart(c_.model, std::move(contents), c_.writes);
  }
  for (std::size_t w = 0; w < c_.writes.size(); ++w) {
    const Operand& write = c_.writes[w];
    const Tensor whole{types[w], write.tensor.data};
    TIDEMARK_ASSIGN(const Contents written, Of(write));
    for (const Shared& shared : SharedBy(contents, written)) {
      const Stretch& stretch = shared.stretch;
      Piece& piece = pieces[{stretch.weight.name, stretch.block, stretch.begin}];
      piece.gradient = Slice(static_cast<ConstTensor>(gradient.tensor), stretch.offset, stretch.elements);
      for (std::int64_t i = 0; i < write.buffer->elements / written.elements; ++i) {
        const Tensor part = Slice(whole, i * written.elements + shared.offset, stretch.elements);
        if (IsMoments(*write.buffer)) {
          piece.moments.push_back(part);
        } else if (write.buffer->category == Category::optimizer || piece.updated.type.elements == 0) {
          if (piece.updated.type.elements != 0) {
            piece.copies.push_back(piece.updated);
          }
          piece.updated = part;
          if (IsChange(w)) {
            TIDEMARK_ASSIGN(piece.weights, WeightsOf(stretch));
          }
        } else {
          piece.copies.push_back(part);
        }
      }
    }
  }
  std::vector<Piece> all;
  for (auto& [key, piece] : pieces) {
    if (piece.moments.empty() && StatesPerWeight(c_.job.optimizer) > 0) {
      continue;  // another rank's, of a gradient and weights that are here whole
    }
    TIDEMARK_TRY(CheckPiece(piece, std::get<0>(key)));
    all.push_back(std::move(piece));
  }
  return all;
}

/// Where the same numbers of the weights that it reads lie.
Result<ConstTensor> StateBinder::WeightsOf(const Stretch& stretch) const {
  for (const Operand& read : c_.reads) {
    const auto contents = read.buffer->category == Category::parameter ? ContentsOf(c_.model, read) : std::nullopt;
    const auto shared = contents ? SharedBy({{stretch}, stretch.elements}, *contents) : std::vector<Shared>();
    if (shared.size() == 1 && shared.front().stretch.elements == stretch.elements) {
      return Slice(static_cast<ConstTensor>(read.tensor), shared.front().offset, stretch.elements);
    }
  }
  return NotExecuted(fmt::format("'{}', which reads no weights of '{}'", c_.name, stretch.weight.name));
}

/// Everything that an update needs of a parameter must be cut alike.
Status StateBinder::CheckPiece(const Piece& piece, std::string_view weight) const {
  const std::int64_t elements = piece.gradient.type.elements;
  const auto fits = [&](const Tensor& tensor) { return tensor.type.elements == elements; };
  const bool has_moments = std::ssize(piece.moments) == StatesPerWeight(c_.job.optimizer);
  if (!fits(piece.updated) || !has_moments || !std::all_of(piece.moments.begin(), piece.moments.end(), fits) ||
      !std::all_of(piece.copies.begin(), piece.copies.end(), fits)) {
    return NotExecuted(
        fmt::format("'{}', whose gradient, weights and moments of '{}' are cut differently", c_.name, weight));
  }
  return Done{};
}

Result<Operation> StateBinder::Update() const {
  std::vector<Piece> pieces;
  Operation operation;
  TIDEMARK_ASSIGN(operation.outputs, StateTypes());
  for (const Operand& read : c_.reads) {
    if (IsGradient(*read.buffer)) {
      TIDEMARK_ASSIGN(std::vector<Piece> more, PiecesOf(read, operation.outputs));
      pieces.insert(pieces.end(), more.begin(), more.end());
    }
  }
  operation.run = [pieces = std::move(pieces), kind = c_.job.optimizer, step = c_.update](Writes) {
    kernels::AdamW adamw;
    adamw.step = step;
    for (const Piece& piece : pieces) {
      if (piece.weights) {
        kernels::Copy(*piece.weights, piece.updated);
      }
      switch (kind) {
        case OptimizerKind::adamw:
          AdamWUpdate(adamw, piece.gradient, piece.updated, piece.moments.at(0), piece.moments.at(1));
          break;
        case OptimizerKind::sgd_momentum:
          SgdMomentumUpdate({}, piece.gradient, piece.updated, piece.moments.at(0));
          break;
        case OptimizerKind::sgd:
          SgdUpdate({}, piece.gradient, piece.updated);
          break;
      }
      if (piece.weights) {
        kernels::Accumulate(*piece.weights, piece.updated, -1);
      }
      for (const Tensor& copy : piece.copies) {
        kernels::Copy(piece.updated, copy);
      }
    }
  };
  return operation;
}

}  // namespace

Result<Operation> BindStateOperation(const OperationContext& context) { return StateBinder(context).Bind(); }

}  // namespace tidemark
