// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <numeric>
#include <vector>

#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// The tokens whose rows are here, row by row, each row's in their own order.
std::vector<std::int64_t> TokensByRow(const Embedding& op, const std::int64_t* ids) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(op.tokens));
  std::iota(tokens.begin(), tokens.end(), 0);
  std::erase_if(tokens, [&](std::int64_t token) {
    return ids[token] < op.first_row || ids[token] >= op.first_row + op.vocabulary;
  });
  std::stable_sort(tokens.begin(), tokens.end(), [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
  return tokens;
}

/// A row of a table's gradient while addends are put into it.
template <class C>
class RowSum {
 public:
  RowSum(const Tensor& table, std::int64_t width) : width_(width), rows_(table, width) {}

  template <class EachAddend>
  void Make(std::int64_t row, EachAddend each) {
    C* sum = rows_.Present(row * width_, width_);
    each([this, sum](const C* addend) { Each(width_, [=](std::int64_t i) { sum[i] += addend[i]; }); });
    rows_.Done(row * width_, width_);
  }

 private:
  std::int64_t width_;
  Writer<C> rows_;
};

}  // namespace

TensorType EmbeddingOutput(const Embedding& op, DType weight) { return {weight, op.tokens * op.width}; }
TensorType EmbeddingGradientOutput(const Embedding& op, DType gradients) {
  return {gradients, op.vocabulary * op.width};
}

void EmbeddingForward(const Embedding& op, const ConstTensor& ids, const ConstTensor& weight, const Tensor& output) {
  TIDEMARK_CHECK(ids.type.elements == op.tokens && weight.type.elements == op.vocabulary * op.width);
  TIDEMARK_CHECK(output.type.elements == op.tokens * op.width);
  const auto* id = Elements<std::int64_t>(ids);
  for (std::int64_t token = 0; token < op.tokens; ++token) {
    const std::int64_t row = id[token] - op.first_row;
    const Tensor to = Slice(output, token * op.width, op.width);
    if (row >= 0 && row < op.vocabulary) {
      Copy(Slice(weight, row * op.width, op.width), to);
    } else {
      Zero(to);
    }
  }
}

void EmbeddingBackward(const Embedding& op, const ConstTensor& ids, const ConstTensor& output_gradient,
                       const Tensor& weight_gradient) {
  TIDEMARK_CHECK(ids.type.elements == op.tokens && weight_gradient.type.elements == op.vocabulary * op.width);
  TIDEMARK_CHECK(output_gradient.type.elements == op.tokens * op.width);
  if (!op.accumulate) {
    Zero(weight_gradient);
  }
  const auto* id = Elements<std::int64_t>(ids);
  const std::vector<std::int64_t> tokens = TokensByRow(op, id);
  InArithmeticOf({output_gradient.type, weight_gradient.type}, [&]<class C>(C) {
    Reader<C> gradients(output_gradient, op.width);
    RowSum<C> rows(weight_gradient, op.width);
    for (std::size_t i = 0; i < tokens.size();) {
      const std::int64_t row = id[tokens[i]];
      rows.Make(row - op.first_row, [&](auto add) {
        for (; i < tokens.size() && id[tokens[i]] == row; ++i) {
          add(gradients.At(tokens[i] * op.width, op.width));
        }
      });
    }
  });
}

TensorType PositionsOutput(const Positions& op, DType input) { return {input, op.rows * op.width}; }
TensorType PositionsGradientOutput(const Positions& op, DType gradients) {
  return {gradients, op.positions * op.width};
}

void PositionsForward(const Positions& op, const ConstTensor& input, const ConstTensor& table, const Tensor& output) {
  TIDEMARK_CHECK(op.places.Of(op.sequence - 1, op.sequence) < op.positions &&
                 table.type.elements == op.positions * op.width);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.width && output.type.elements == input.type.elements);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    const std::int64_t place = op.PlaceOf(row);
    const ConstTensor addends[] = {Slice(input, row * op.width, op.width), Slice(table, place * op.width, op.width)};
    Add(addends, Slice(output, row * op.width, op.width));
  }
}

void PositionsBackward(const Positions& op, const ConstTensor& output_gradient, const Tensor& table_gradient) {
  TIDEMARK_CHECK(op.places.Of(op.sequence - 1, op.sequence) < op.positions &&
                 table_gradient.type.elements == op.positions * op.width);
  TIDEMARK_CHECK(output_gradient.type.elements == op.rows * op.width);
  if (!op.accumulate) {
    Zero(table_gradient);
  }
  InArithmeticOf({output_gradient.type, table_gradient.type}, [&]<class C>(C) {
    Reader<C> gradients(output_gradient, op.width);
    RowSum<C> rows(table_gradient, op.width);
    for (std::int64_t first = 0; first < std::min(op.rows, op.sequence); ++first) {
      rows.Make(op.PlaceOf(first), [&](auto add) {
        for (std::int64_t row = first; row < op.rows; row += op.sequence) {
          add(gradients.At(row * op.width, op.width));
        }
      });
    }
  });
}

}  // namespace tidemark::kernels
