// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <optional>
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

/// What an operation of a system does with its operands.
enum class Does : std::uint8_t {
  copy,  ///< each write is the same numbers of what is read, cast and scaled
  add,   ///< the first read is added to the write
  zero,
};

struct Row {
  std::string_view name;
  Does does;
};

/// Every operation that systems have around the network, by the name that sim/strategies and sim/lower give it.
constexpr std::array kRows = {
    Row{"accumulate gradient", Does::add},         Row{"gradient from bucket", Does::copy},
    Row{"gradient to bucket", Does::copy},         Row{"masters to weights", Does::copy},
    Row{"embedding.add_tied_gradient", Does::add}, Row{"zero gradient", Does::zero},
    Row{"zero gradient buffer", Does::zero},       Row{"zero moments", Does::zero},
};

/// Where a stretch of numbers lies in what an operation reads.
struct Found {
  std::size_t read = 0;
  std::int64_t offset = 0;
};

class StateBinder {
 public:
  explicit StateBinder(const OperationContext& context) : c_(context) {}

  Result<Operation> Bind() const {
    if (std::holds_alternative<OptimizerUpdate>(c_.op)) {
      return Update();
    }
    for (const Row& row : kRows) {
      if (row.name == c_.name) {
        return row.does == Does::copy ? Copy() : row.does == Does::add ? Add() : Zero();
      }
    }
    return NotExecuted(c_.name);
  }

 private:
  Result<std::vector<Stretch>> Contents(const Operand& operand) const {
    if (auto contents = ContentsOf(c_.model, *operand.buffer, operand.index)) {
      return std::move(*contents);
    }
    return NotExecuted(fmt::format("'{}', whose numbers in '{}' have no known place", c_.name, operand.buffer->name));
  }

  /// Types of all writes, as the job has them.
  Result<std::vector<TensorType>> StateTypes() const {
    std::vector<TensorType> types;
    for (const Operand& write : c_.writes) {
      TIDEMARK_ASSIGN(const std::vector<Stretch> contents, Contents(write));
      const TensorType type = StateType(c_.job, *write.buffer, contents);
      types.push_back({c_.Stored(type.dtype), type.elements});
    }
    return types;
  }

  Result<Operation> Zero() const {
    TIDEMARK_ASSIGN(std::vector<TensorType> types, StateTypes());
    return Operation{std::move(types), [](Writes writes) {
                       for (const Tensor& write : writes) {
                         kernels::Zero(write);
                       }
                     }};
  }

  Result<Operation> Add() const {
    return Operation{{c_.writes[0].tensor.type},
                     [addend = c_.Read(0), scale = c_.scale](Writes writes) { Accumulate(addend, writes[0], scale); }};
  }

  Result<Operation> Copy() const {
    TIDEMARK_ASSIGN(std::vector<TensorType> types, StateTypes());
    struct Part {
      ConstTensor from;
      std::size_t write = 0;
      std::int64_t offset = 0;
    };
    std::vector<Part> pieces;
    for (std::size_t i = 0; i < c_.writes.size(); ++i) {
      TIDEMARK_ASSIGN(const std::vector<Stretch> contents, Contents(c_.writes[i]));
      for (const Stretch& stretch : contents) {
        TIDEMARK_ASSIGN(const std::optional<Found> found, Find(stretch));
        if (!found) {
          return NotExecuted(fmt::format("'{}', which does not read '{}'", c_.name, stretch.weight.name));
        }
        pieces.push_back({Slice(c_.Read(found->read), found->offset, stretch.elements), i, stretch.offset});
      }
    }
    return Operation{std::move(types), [pieces = std::move(pieces), scale = c_.scale](Writes writes) {
                       for (const Part& piece : pieces) {
                         const Tensor to = Slice(writes[piece.write], piece.offset, piece.from.type.elements);
                         kernels::Copy(piece.from, to, scale);
                       }
                     }};
  }

  Result<std::optional<Found>> Find(const Stretch& wanted) const {
    for (std::size_t i = 0; i < c_.reads.size(); ++i) {
      TIDEMARK_ASSIGN(const std::vector<Stretch> contents, Contents(c_.reads[i]));
      for (const Stretch& stretch : contents) {
        if (stretch.SameAs(wanted)) {
          return std::optional(Found{i, stretch.offset});
        }
      }
    }
    return std::optional<Found>();
  }

  // One update of one parameter, in pieces: its gradient, what is updated, and its moments.
  struct Piece {
    ConstTensor gradient;
    Tensor updated;
    std::vector<Tensor> copies;  ///< weights that are cast from it
    std::vector<Tensor> moments;
  };

  static bool IsGradient(const Buffer& buffer) {
    return buffer.category == Category::gradient || buffer.category == Category::accumulator ||
           buffer.category == Category::bucket;
  }
  static bool IsMoments(const Buffer& buffer) { return buffer.name.starts_with("moments"); }

  Result<Operation> Update() const;
  Result<std::vector<Piece>> PiecesOf(const Operand& gradient) const;

  const OperationContext& c_;
};

/// Each gradient's parameters, and where they lie in what is written: masters and weights, or weights alone, and the
/// moments of either.
Result<std::vector<StateBinder::Piece>> StateBinder::PiecesOf(const Operand& gradient) const {
  std::vector<Piece> pieces;
  TIDEMARK_ASSIGN(const std::vector<Stretch> contents, Contents(gradient));
  for (const Stretch& stretch : contents) {
    Piece piece{
        kernels::Slice(static_cast<ConstTensor>(gradient.tensor), stretch.offset, stretch.elements), {}, {}, {}};
    for (const Operand& write : c_.writes) {
      TIDEMARK_ASSIGN(const std::vector<Stretch> written, Contents(write));
      for (const Stretch& other : written) {
        if (!other.SameAs(stretch)) {
          continue;
        }
        const std::int64_t one = ElementsOf(written);
        const std::int64_t times = write.buffer->elements / one;
        for (std::int64_t i = 0; i < times; ++i) {
          const Tensor part = Slice(write.tensor, i * one + other.offset, other.elements);
          if (IsMoments(*write.buffer)) {
            piece.moments.push_back(part);
          } else if (write.buffer->category == Category::optimizer || piece.updated.type.elements == 0) {
            if (piece.updated.type.elements != 0) {
              piece.copies.push_back(piece.updated);
            }
            piece.updated = part;
          } else {
            piece.copies.push_back(part);
          }
        }
      }
    }
    if (piece.updated.type.elements == 0) {
      return NotExecuted(fmt::format("'{}', which does not update '{}'", c_.name, stretch.weight.name));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Result<Operation> StateBinder::Update() const {
  std::vector<Piece> pieces;
  for (const Operand& read : c_.reads) {
    if (IsGradient(*read.buffer)) {
      TIDEMARK_ASSIGN(std::vector<Piece> more, PiecesOf(read));
      pieces.insert(pieces.end(), more.begin(), more.end());
    }
  }
  Operation operation;
  TIDEMARK_ASSIGN(operation.outputs, StateTypes());
  operation.run = [pieces = std::move(pieces), kind = c_.job.optimizer, step = c_.update](Writes) {
    kernels::AdamW adamw;
    adamw.step = step;
    for (const Piece& piece : pieces) {
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
