// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "profiler/execute/operation.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Tensor;
using kernels::TensorType;
using Writes = std::span<const kernels::Tensor>;

class UpdateBinder {
 public:
  explicit UpdateBinder(const OperationContext& context) : c_(context) {}

  Result<Operation> Bind() const;

 private:
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

  Result<std::vector<Piece>> PiecesOf(const Operand& gradient, std::span<const TensorType> types) const;
  Result<ConstTensor> WeightsOf(const Stretch& stretch) const;
  Status CheckPiece(const Piece& piece, std::string_view weight) const;

  const OperationContext& c_;
};

/// Each gradient's parameters, and where they lie in what is written: masters and weights, or weights alone, and the
/// moments of either. What this rank does not update has no piece.
Result<std::vector<UpdateBinder::Piece>> UpdateBinder::PiecesOf(const Operand& gradient,
                                                                std::span<const TensorType> types) const {
  using Key = std::tuple<std::string, std::int64_t, std::int64_t>;
  std::map<Key, Piece> pieces;
  TIDEMARK_ASSIGN(Contents contents, KnownContents(c_, gradient));
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
    TIDEMARK_ASSIGN(const Contents written, KnownContents(c_, write));
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
Result<ConstTensor> UpdateBinder::WeightsOf(const Stretch& stretch) const {
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
Status UpdateBinder::CheckPiece(const Piece& piece, std::string_view weight) const {
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

Result<Operation> UpdateBinder::Bind() const {
  std::vector<Piece> pieces;
  Operation operation;
  TIDEMARK_ASSIGN(operation.outputs, StateTypes(c_));
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

Result<Operation> BindUpdate(const OperationContext& context) { return UpdateBinder(context).Bind(); }

}  // namespace tidemark
