// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/optimizer_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/together.h"
#include "profiler/execute/operation.h"
#include "profiler/execute/updated_piece.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Tensor;
using kernels::TensorType;
using Writes = std::span<const kernels::Tensor>;

/// How much of an update one operation does (sim/strategies/update_kernels.h).
enum class Does : std::uint8_t { all, moments, weights };

Does DoesOf(std::string_view name) {
  return name == "update moments" ? Does::moments : name == kApplyUpdate ? Does::weights : Does::all;
}

void UpdateWith(const Queue& queue, const kernels::AdamW& adamw, Does does, const UpdatedPiece& piece) {
  const Tensor &first = piece.moments.at(0), &second = piece.moments.at(1);
  switch (does) {
    case Does::all:
      return on::AdamWUpdate(queue, adamw, piece.source, piece.updated, first, second);
    case Does::moments:
      return on::AdamWMoments(queue, adamw, piece.source, piece.updated, first, second);
    case Does::weights:
      return on::AdamWApply(queue, adamw, first, piece.source, piece.updated);
  }
}

/// Pieces do not share a number: all of them go through one kernel, and then through the next.
void UpdateAll(const Queue& queue, OptimizerKind kind, Does does, const kernels::AdamW& adamw,
               std::span<const UpdatedPiece> pieces) {
  const auto each = [&](const auto& give) { kernels::EachTogether(queue, pieces, give); };
  each([](const Queue& on_queue, const UpdatedPiece& piece) {
    if (piece.weights) {
      on::Copy(on_queue, *piece.weights, piece.updated);
    }
  });
  const bool has_momentum = kind == OptimizerKind::sgd_momentum;
  if (kind == OptimizerKind::adamw) {
    each([&](const Queue& on_queue, const UpdatedPiece& piece) { UpdateWith(on_queue, adamw, does, piece); });
  }
  if (has_momentum && does != Does::weights) {
    each([](const Queue& on_queue, const UpdatedPiece& piece) {
      on::SgdMomentum(on_queue, {}, piece.source, piece.moments.at(0));
    });
  }
  if (kind == OptimizerKind::sgd || (has_momentum && does != Does::moments)) {
    each([&](const Queue& on_queue, const UpdatedPiece& piece) {
      const bool is_in_moments = has_momentum && does == Does::all;
      on::SgdUpdate(on_queue, {}, is_in_moments ? ConstTensor(piece.moments.at(0)) : piece.source, piece.updated);
    });
  }
  each([](const Queue& on_queue, const UpdatedPiece& piece) {
    if (piece.weights) {
      on::Accumulate(on_queue, *piece.weights, piece.updated, -1);
    }
  });
  each([](const Queue& on_queue, const UpdatedPiece& piece) {
    for (const Tensor& copy : piece.copies) {
      on::Copy(on_queue, piece.updated, copy);
    }
  });
}

class UpdateBinder {
 public:
  explicit UpdateBinder(const OperationContext& context) : c_(context), does_(DoesOf(context.name)) {}

  Result<Operation> Bind();

 private:
  /// What has numbers of the parameters, beside the source.
  struct Target {
    const Operand* operand = nullptr;
    TensorType type;
    bool is_change = false;
  };

  static bool IsGradient(const Buffer& buffer) {
    return buffer.category == Category::gradient || buffer.category == Category::accumulator ||
           buffer.category == Category::bucket;
  }
  /// State that is not there before: neither moments nor what is updated, but the update itself (optax's tree of them).
  bool IsChange(std::size_t write) const {
    return c_.writes[write].buffer->category == Category::optimizer && !c_.Adds(write);
  }

  Result<std::vector<UpdatedPiece>> PiecesOfGradients() const;
  Result<std::vector<UpdatedPiece>> PiecesOfMoments();
  Result<std::vector<UpdatedPiece>> PiecesOf(const Operand& source, const Contents& contents) const;
  Status AddPart(const Target& target, const Stretch& stretch, const Tensor& part, UpdatedPiece& piece) const;
  Result<ConstTensor> WeightsOf(const Stretch& stretch) const;
  Status CheckPiece(const UpdatedPiece& piece, std::string_view weight) const;

  const OperationContext& c_;
  Does does_;
  std::vector<Target> targets_;
};

/// Each source's parameters, and where they lie in what is written: masters and weights, or weights alone, and the
/// moments of either. What this rank does not update has no piece.
Result<std::vector<UpdatedPiece>> UpdateBinder::PiecesOf(const Operand& source, const Contents& contents) const {
  using Key = std::tuple<std::string, std::int64_t, std::int64_t>;
  std::map<Key, UpdatedPiece> pieces;
  for (const Target& target : targets_) {
    const Tensor whole{target.type, target.operand->tensor.data};
    TIDEMARK_ASSIGN(const auto held, KnownContents(c_, *target.operand));
    for (const Shared& shared : SharedBy(contents, *held)) {
      const Stretch& stretch = shared.stretch;
      UpdatedPiece& piece = pieces[{stretch.weight.name, stretch.block, stretch.begin}];
      piece.source = kernels::Slice(static_cast<ConstTensor>(source.tensor), stretch.offset, stretch.elements);
      if (piece.memory.empty()) {
        piece.memory.push_back(source.tensor.data);
      }
      piece.memory.push_back(whole.data);
      for (std::int64_t i = 0; i < target.operand->buffer->elements / held->elements; ++i) {
        const Tensor part = kernels::Slice(whole, i * held->elements + shared.offset, stretch.elements);
        TIDEMARK_TRY(AddPart(target, stretch, part, piece));
      }
    }
  }
  std::vector<UpdatedPiece> all;
  for (auto& [key, piece] : pieces) {
    if (piece.moments.empty() && StatesPerWeight(c_.job.optimizer) > 0) {
      continue;  // another rank's, of a gradient and weights that are here whole
    }
    TIDEMARK_TRY(CheckPiece(piece, std::get<0>(key)));
    all.push_back(std::move(piece));
  }
  return all;
}

Status UpdateBinder::AddPart(const Target& target, const Stretch& stretch, const Tensor& part,
                             UpdatedPiece& piece) const {
  const Buffer& buffer = *target.operand->buffer;
  if (IsMoments(buffer)) {
    piece.moments.push_back(part);
  } else if (buffer.category == Category::optimizer || piece.updated.type.elements == 0) {
    if (piece.updated.type.elements != 0) {
      piece.copies.push_back(piece.updated);
    }
    piece.updated = part;
    if (target.is_change) {
      TIDEMARK_ASSIGN(piece.weights, WeightsOf(stretch));
    }
  } else {
    piece.copies.push_back(part);
  }
  return Done{};
}

/// Where the same numbers of the weights that it reads lie.
Result<ConstTensor> UpdateBinder::WeightsOf(const Stretch& stretch) const {
  for (const Operand& read : c_.reads) {
    const auto contents = read.buffer->category == Category::parameter ? ContentsOf(c_.model, read) : nullptr;
    const auto shared = contents ? SharedBy({{stretch}, stretch.elements}, *contents) : std::vector<Shared>();
    if (shared.size() == 1 && shared.front().stretch.elements == stretch.elements) {
      return kernels::Slice(static_cast<ConstTensor>(read.tensor), shared.front().offset, stretch.elements);
    }
  }
  return NotExecuted(fmt::format("'{}', which reads no weights of '{}'", c_.name, stretch.weight.name));
}

/// Everything that an update needs of a parameter must be cut alike.
Status UpdateBinder::CheckPiece(const UpdatedPiece& piece, std::string_view weight) const {
  const std::int64_t elements = piece.source.type.elements;
  const auto fits = [&](const Tensor& tensor) { return tensor.type.elements == elements; };
  const bool has_moments = std::ssize(piece.moments) == StatesPerWeight(c_.job.optimizer);
  if (!fits(piece.updated) || !has_moments || !std::all_of(piece.moments.begin(), piece.moments.end(), fits) ||
      !std::all_of(piece.copies.begin(), piece.copies.end(), fits)) {
    return NotExecuted(
        fmt::format("'{}', whose gradient, weights and moments of '{}' are cut differently", c_.name, weight));
  }
  return Done{};
}

Result<std::vector<UpdatedPiece>> UpdateBinder::PiecesOfGradients() const {
  std::vector<UpdatedPiece> pieces;
  for (const Operand& read : c_.reads) {
    if (!IsGradient(*read.buffer)) {
      continue;
    }
    TIDEMARK_ASSIGN(auto contents, KnownContents(c_, read));
    if (c_.own_part) {
      const auto is_state = [](const Operand& write) { return write.buffer->category == Category::optimizer; };
      if (std::none_of(c_.writes.begin(), c_.writes.end(), is_state)) {
        return NotExecuted(fmt::format("'{}' of a rank's part, without state that tells which", c_.name));
      }
      contents = std::make_shared<const Contents>(UpdatedPart(c_.model, *contents, c_.writes));
    }
    TIDEMARK_ASSIGN(const std::vector<UpdatedPiece> more, PiecesOf(read, *contents));
    pieces.insert(pieces.end(), more.begin(), more.end());
  }
  return pieces;
}

/// What the last read has a number for, all of it: what AdamW divides by, or SGD's momentum.
Result<std::vector<UpdatedPiece>> UpdateBinder::PiecesOfMoments() {
  for (const Operand& read : c_.reads) {
    if (IsMoments(*read.buffer)) {
      targets_.push_back({&read, read.tensor.type, false});
    }
  }
  const Operand& source = c_.reads.back();
  TIDEMARK_ASSIGN(const auto contents, KnownContents(c_, source));
  TIDEMARK_ASSIGN(std::vector<UpdatedPiece> pieces, PiecesOf(source, *contents));
  std::int64_t missing = 0;
  for (const Stretch& stretch : contents->stretches) {
    missing += stretch.elements;
  }
  for (const UpdatedPiece& piece : pieces) {
    missing -= piece.source.type.elements;
  }
  if (missing != 0 || IsMoments(*source.buffer) != (c_.job.optimizer == OptimizerKind::sgd_momentum)) {
    return NotExecuted(fmt::format("'{}' of '{}'", c_.name, source.buffer->name));
  }
  return pieces;
}

Result<Operation> UpdateBinder::Bind() {
  Operation operation;
  TIDEMARK_ASSIGN(operation.outputs, StateTypes(c_));
  for (std::size_t w = 0; w < c_.writes.size(); ++w) {
    targets_.push_back({&c_.writes[w], operation.outputs[w], IsChange(w)});
  }
  TIDEMARK_ASSIGN(std::vector<UpdatedPiece> pieces, does_ == Does::weights ? PiecesOfMoments() : PiecesOfGradients());
  // They come by the names of parameters; in a flat buffer these lie in another order.
  std::sort(pieces.begin(), pieces.end(), [](const UpdatedPiece& one, const UpdatedPiece& other) {
    return std::less<const void*>()(one.source.data, other.source.data);
  });
  operation.run = [pieces = Joined(pieces), does = does_, kind = c_.job.optimizer, step = c_.update](
                      Writes, const Queue& queue) {
    kernels::AdamW adamw;
    adamw.step = step;
    UpdateAll(queue, kind, does, adamw, pieces);
  };
  return operation;
}

}  // namespace

Result<Operation> BindUpdate(const OperationContext& context) { return UpdateBinder(context).Bind(); }

}  // namespace tidemark
