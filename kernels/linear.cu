// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/columns.cuh"
#include "kernels/linear_cuda.h"
#include "kernels/linear_parts.h"
#include "kernels/product_cuda.h"
#include "kernels/team.cuh"
#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// Rows of a tensor with as many elements in each.
MatrixView Rows(const Linear& op, const ConstTensor& tensor, std::int64_t width, bool transposed = false) {
  return {tensor, 0, op.rows, width, width, transposed};
}

template <class C>
struct SumColumn {
  std::int64_t width;
  bool accumulate;
  std::int64_t first;
  Input<C> rows;
  Output<C> sums;
  template <class At>
  __host__ __device__ auto Term(std::int64_t row, At column) const {
    return rows[column + row * width];
  }
  __host__ __device__ void Store(std::int64_t column, C sum) const {
    sums.Set(first + column, accumulate ? sums[first + column] + sum : sum);
  }
};

template <class C>
struct AddBiasRow {
  std::int64_t width;
  Input<C> input, bias;
  Output<C> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width;
    team.Each(begin, begin + width, [&](auto at) { output.Set(at, Map(std::plus<>(), input[at], bias[at - begin])); });
  }
};

/// Matrices side by side, a word at a time.
struct JoinWord {
  std::uint32_t count, width;                ///< of matrices; of all together, words of a row
  std::uint32_t first[kMostTerms + 1] = {};  ///< where a matrix begins in such a row; the next one's is its end
  const Word* parts[kMostTerms] = {};
  Word* joined;
  __host__ __device__ void operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t row = at / width, column = at - row * width;
    std::uint32_t part = 0;
    while (part + 1 < count && column >= first[part + 1]) {
      ++part;
    }
    joined[at] = parts[part][row * (first[part + 1] - first[part]) + column - first[part]];
  }
};

/// How many rows of several tensors of two bytes have room side by side in half of the workspace, from which a library
/// then multiplies them at once; 0 where it is to multiply them one by one, as rows that are not in words.
std::int64_t RowsToJoin(const Linear& op, std::span<const ConstTensor> parts, const TensorType& weight,
                        const Queue& queue) {
  constexpr std::int64_t kEven = 64;
  if (parts.size() < 2 || op.rows * op.out == 0) {
    return 0;
  }
  const bool are_alike = std::all_of(parts.begin(), parts.end(), [&](const ConstTensor& part) {
    return part.type.dtype == weight.dtype && SizeOf(part.type.dtype) == Bytes(2) &&
           part.type.elements % (op.rows * kPerWord<Bf16>) == 0 &&
           reinterpret_cast<std::uintptr_t>(part.data) % sizeof(Word) == 0;
  });
  if (queue.blas == nullptr || parts.size() > kMostTerms || !are_alike) {
    return 0;
  }
  const std::int64_t most = HalvesOf(queue).upper_bytes / (2 * op.out);
  if (most < std::min(op.rows, kEven)) {
    return 0;
  }
  const std::int64_t times = (op.rows - 1) / most + 1, each = (op.rows - 1) / times + 1;
  return std::min(most, RoundUp(each, kEven));
}

void InputGradientOfJoined(const Linear& op, std::span<const ConstTensor> parts, const ConstTensor& weight,
                           const Tensor& input_gradient, std::int64_t most, const Queue& queue) {
  const Halves halves = HalvesOf(queue);
  for (std::int64_t row = 0; row < op.rows; row += most) {
    const std::int64_t rows = std::min(most, op.rows - row);
    const Tensor joined{{weight.type.dtype, rows * op.out}, halves.upper};
    JoinWord join{.count = 0,
                  .width = static_cast<std::uint32_t>(op.out / kPerWord<Bf16>),
                  .joined = reinterpret_cast<Word*>(halves.upper)};
    EachPart(op, parts, [&](const ConstTensor& part, std::int64_t first, std::int64_t width) {
      join.parts[join.count] = static_cast<const Word*>(Slice(part, row * width, rows * width).data);
      join.first[join.count] = static_cast<std::uint32_t>(first / kPerWord<Bf16>);
      join.first[++join.count] = static_cast<std::uint32_t>((first + width) / kPerWord<Bf16>);
    });
    EachElement(queue, rows * join.width, join);
    const BatchTerm term{{joined, 0, rows, op.out, op.out}, WeightRows(op, weight, 0, op.out, false)};
    SumOfProducts({&term, 1}, {{input_gradient, row * op.in, rows, op.in, op.in}}, halves.library);
  }
}

}  // namespace

void LinearForward(const Linear& op, const ConstTensor& input, const ConstTensor& weight,
                   const std::optional<ConstTensor>& bias, std::span<const Tensor> outputs, const Queue& queue) {
  CheckWeight(op, weight.type);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.in && (!bias || bias->type.elements == op.out));
  EachPart(op, outputs, [&](const Tensor& output, std::int64_t first, std::int64_t width) {
    const BatchTerm term{Rows(op, input, op.in), WeightRows(op, weight, first, width, true)};
    BatchResult result{{output, 0, op.rows, width, width}};
    if (bias) {
      result.first.row = Slice(*bias, first, width);
    }
    SumOfProducts({&term, 1}, result, queue);
  });
}

void LinearInputGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const ConstTensor& weight,
                         const Tensor& input_gradient, const Queue& queue) {
  CheckWeight(op, weight.type);
  TIDEMARK_CHECK(input_gradient.type.elements == op.rows * op.in);
  if (const std::int64_t rows = RowsToJoin(op, output_gradients, weight.type, queue); rows > 0) {
    InputGradientOfJoined(op, output_gradients, weight, input_gradient, rows, queue);
    return;
  }
  std::vector<BatchTerm> terms;
  EachPart(op, output_gradients, [&](const ConstTensor& gradient, std::int64_t first, std::int64_t width) {
    terms.push_back({Rows(op, gradient, width), WeightRows(op, weight, first, width, false)});
  });
  SumOfProducts(terms, {{input_gradient, 0, op.rows, op.in, op.in}}, queue);
}

void LinearWeightGradient(const Linear& op, const ConstTensor& input, std::span<const ConstTensor> output_gradients,
                          const Tensor& weight_gradient, const Queue& queue) {
  CheckWeight(op, weight_gradient.type);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.in);
  EachPart(op, output_gradients, [&](const ConstTensor& gradient, std::int64_t first, std::int64_t width) {
    const BatchTerm term{Rows(op, gradient, width, true), Rows(op, input, op.in)};
    SumOfProducts({&term, 1}, {{weight_gradient, first * op.in, width, op.in, op.in, op.accumulate}}, queue);
  });
}

void LinearBiasGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const Tensor& bias_gradient,
                        const Queue& queue) {
  TIDEMARK_CHECK(bias_gradient.type.elements == op.out);
  EachPart(op, output_gradients, [&](const ConstTensor& gradient, std::int64_t first, std::int64_t width) {
    InArithmeticOf({gradient.type, bias_gradient.type}, [&]<class C>(C) {
      EachColumn<C>(queue, op.rows, width, SumColumn<C>{width, op.accumulate, first, gradient, bias_gradient});
    });
  });
}

void AddBias(const Linear& op, const ConstTensor& input, const ConstTensor& bias, const Tensor& output,
             const Queue& queue) {
  TIDEMARK_CHECK(bias.type.elements == op.out && input.type.elements == op.rows * op.out);
  TIDEMARK_CHECK(output.type.elements == input.type.elements);
  InArithmeticOf({input.type, bias.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, AddBiasRow<C>{op.out, input, bias, output});
  });
}

}  // namespace tidemark::kernels::cuda
