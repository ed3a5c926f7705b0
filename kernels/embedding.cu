// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "kernels/embedding_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct LookUpRow {
  Embedding op;
  const std::int64_t* ids;
  Input<C> weight;
  Output<C> output;

  __host__ __device__ void operator()(const Team& team, std::int64_t token) const {
    const std::int64_t row = ids[token] - op.first_row;
    const bool is_here = row >= 0 && row < op.vocabulary;
    const std::int64_t begin = token * op.width, from = row * op.width - begin;
    team.Each(begin, begin + op.width,
              [&](auto at) { output.Set(at, is_here ? weight[at + from] : Everywhere(at, C(0))); });
  }
};

/// The gradient of a row of the table, some columns of it, by the team of its first token: it finds the later ones by
/// looking through all ids. That is `tokens`^2 / 2 comparisons altogether, and no memory to sort in.
template <class C>
struct SumTokens {
  Embedding op;
  const std::int64_t* ids;
  Input<C> gradient;
  Output<C> sums;
  std::int64_t chunks, chunk;  ///< of columns, and their width: a pack of each thread

  __host__ __device__ void operator()(const Team& team, std::int64_t task) const {
    const std::int64_t first = task / chunks, id = ids[first], row = id - op.first_row;
    const auto is_same = [ids = ids, id](std::int64_t token) { return ids[token] == id; };
    if (row < 0 || row >= op.vocabulary || team.Any(0, first, is_same)) {
      return;
    }
    const std::int64_t begin = row * op.width;
    const PackAt mine{task % chunks * chunk + team.rank() * kPack};
    Pack<C> sum = PackBefore<C>(op.width, mine, [&](auto column) { return sums[column + begin]; });
    team.EachThat(first, op.tokens, is_same, [&](std::int64_t token) {
      const auto addend = [&](auto column) { return gradient[column + token * op.width]; };
      sum = Map(std::plus<>(), sum, PackBefore<C>(op.width, mine, addend));
    });
    EachBefore(op.width, mine, sum, [&](auto column, const auto& value) { sums.Set(column + begin, value); });
  }
};

template <class C>
struct AddPosition {
  Positions op;
  Input<C> input, table;
  Output<C> output;

  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * op.width, place = op.PlaceOf(row) * op.width;
    team.Each(begin, begin + op.width,
              [&](auto at) { output.Set(at, Map(std::plus<>(), input[at], table[at - begin + place])); });
  }
};

/// The gradient of a place that has rows: these are `sequence` apart.
template <class C>
struct SumRowsOfPlace {
  Positions op;
  Input<C> gradient;
  Output<C> sums;

  __host__ __device__ void operator()(const Team& team, std::int64_t first) const {
    const std::int64_t begin = op.PlaceOf(first) * op.width;
    team.Each(0, op.width, [&](auto column) {
      auto sum = sums[column + begin];
      for (std::int64_t row = first; row < op.rows; row += op.sequence) {
        sum = Map(std::plus<>(), sum, gradient[column + row * op.width]);
      }
      sums.Set(column + begin, sum);
    });
  }
};

}  // namespace

void EmbeddingForward(const Embedding& op, const ConstTensor& ids, const ConstTensor& weight, const Tensor& output,
                      const Queue& queue) {
  TIDEMARK_CHECK(ids.type.elements == op.tokens && weight.type.elements == op.vocabulary * op.width);
  TIDEMARK_CHECK(output.type.elements == op.tokens * op.width);
  InArithmeticOf({weight.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.tokens, LookUpRow<C>{op, Elements<std::int64_t>(ids), weight, output});
  });
}

void EmbeddingBackward(const Embedding& op, const ConstTensor& ids, const ConstTensor& output_gradient,
                       const Tensor& weight_gradient, const Queue& queue) {
  TIDEMARK_CHECK(ids.type.elements == op.tokens && weight_gradient.type.elements == op.vocabulary * op.width);
  TIDEMARK_CHECK(output_gradient.type.elements == op.tokens * op.width);
  if (!op.accumulate) {
    Zero(weight_gradient, queue);
  }
  const std::int64_t chunk = TeamSize(queue) * kPack, chunks = (op.width + chunk - 1) / chunk;
  InArithmeticOf({output_gradient.type, weight_gradient.type}, [&]<class C>(C) {
    EachRow(queue, op.tokens * chunks,
            SumTokens<C>{op, Elements<std::int64_t>(ids), output_gradient, weight_gradient, chunks, chunk});
  });
}

void PositionsForward(const Positions& op, const ConstTensor& input, const ConstTensor& table, const Tensor& output,
                      const Queue& queue) {
  TIDEMARK_CHECK(op.places.Of(op.sequence - 1, op.sequence) < op.positions &&
                 table.type.elements == op.positions * op.width);
  TIDEMARK_CHECK(input.type.elements == op.rows * op.width && output.type.elements == input.type.elements);
  InArithmeticOf({input.type, table.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, AddPosition<C>{op, input, table, output});
  });
}

void PositionsBackward(const Positions& op, const ConstTensor& output_gradient, const Tensor& table_gradient,
                       const Queue& queue) {
  TIDEMARK_CHECK(op.places.Of(op.sequence - 1, op.sequence) < op.positions &&
                 table_gradient.type.elements == op.positions * op.width);
  TIDEMARK_CHECK(output_gradient.type.elements == op.rows * op.width);
  if (!op.accumulate) {
    Zero(table_gradient, queue);
  }
  InArithmeticOf({output_gradient.type, table_gradient.type}, [&]<class C>(C) {
    EachRow(queue, std::min(op.rows, op.sequence), SumRowsOfPlace<C>{op, output_gradient, table_gradient});
  });
}

}  // namespace tidemark::kernels::cuda
