// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "kernels/expert_permutation_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// Which tokens go to an expert of the group.
struct Chosen {
  Permutation op;
  const std::uint8_t* mask;
  std::int64_t expert;
  __host__ __device__ bool operator()(std::int64_t token) const {
    return mask[op.InMask(expert * op.tokens + token)] != 0;
  }
};

struct CountExpert {
  Permutation op;
  const std::uint8_t* mask;
  std::int64_t* counts;
  __host__ __device__ void operator()(const Team& team, std::int64_t expert) const {
    const Chosen chosen{op, mask, expert};
    const auto count = team.Sum<std::int64_t>(
        0, op.tokens, [chosen](std::int64_t token) { return std::int64_t{chosen(token) ? 1 : 0}; });
    team.Once([&] { counts[expert] = count; });
  }
};

/// Elements from one tensor to another of the same dtype, as bits.
struct Move {
  Move(const ConstTensor& source, const Tensor& target)
      : from(source.data), to(target.data), bytes(SizeOf(target.type.dtype).count()) {
    TIDEMARK_CHECK(source.type.dtype == target.type.dtype);
  }

  /// An element, or a pack of them.
  template <class At>
  __host__ __device__ void operator()(At source, At target) const {
    bytes == 2   ? Of<std::uint16_t>(source, target)
    : bytes == 4 ? Of<std::uint32_t>(source, target)
                 : Of<std::uint64_t>(source, target);
  }

 private:
  template <class T, class At>
  __host__ __device__ void Of(At source, At target) const {
    Write(Read(static_cast<const T*>(from), source), static_cast<T*>(to), target);
  }

  const void* from;
  void* to;
  std::int64_t bytes;  ///< of an element: 2, 4 or 8
};

/// Which rows are an expert's, and their weights: those behind the rows of the experts before it, by token.
struct OrderExpert {
  Permutation op;
  const std::uint8_t* mask;
  const std::int64_t* counts;
  std::int64_t* token_order;
  Tensor places;
  Move weight;
  __host__ __device__ void operator()(const Team& team, std::int64_t expert) const {
    std::int64_t start = 0;
    for (std::int64_t before = 0; before < expert; ++before) {
      start += counts[before];
    }
    team.EachCounted(0, op.tokens, Chosen{op, mask, expert}, [&](std::int64_t token, bool is_chosen, std::int64_t n) {
      const std::int64_t row = start + n, place = expert * op.tokens + token;
      const bool has_room = row < op.rows();  // as a mask has that gives the group its share
      if (is_chosen && has_room) {
        token_order[row] = token;
        weight(op.InMask(place), row);
      }
      if (places.type.dtype == DType::u8) {
        static_cast<std::uint8_t*>(places.data)[place] = is_chosen ? 1 : 0;
      } else if (is_chosen ? has_room : !op.ones_only) {
        static_cast<std::int64_t*>(places.data)[is_chosen ? row : op.rows() + place - row] = place;
      }
    });
  }
};

/// Rows to where `sort` says, or those that are named one behind the other.
struct MoveRow {
  std::int64_t width;
  const std::int64_t* sources;  ///< null: all in their order
  RowSort sort;
  Move move;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t source = sources == nullptr ? row : sources[row];
    const std::int64_t target = sources == nullptr ? sort.To(row) : row;
    const std::int64_t begin = source * width, offset = target * width - begin;
    team.Each(begin, begin + width, [&](auto at) { move(at, at + offset); });
  }
};

/// The sum of a token's rows, some columns of it.
template <class C>
struct SumRowsOfToken {
  Permutation op;
  Input<C> rows;
  const std::int64_t* token_order;
  Output<C> tokens;
  std::int64_t chunks, chunk;  ///< of columns, and their width: a pack of each thread

  __host__ __device__ void operator()(const Team& team, std::int64_t task) const {
    const std::int64_t token = task / chunks, begin = token * op.width;
    const PackAt mine{task % chunks * chunk + team.rank() * kPack};
    Pack<C> sum = {};
    const auto is_of_token = [order = token_order, token](std::int64_t row) { return order[row] == token; };
    team.EachThat(0, op.rows(), is_of_token, [&](std::int64_t row) {
      const auto addend = [&](auto column) { return rows[column + row * op.width]; };
      sum = Map(std::plus<>(), sum, PackBefore<C>(op.width, mine, addend));
    });
    EachBefore(op.width, mine, sum, [&](auto column, const auto& value) { tokens.Set(column + begin, value); });
  }
};

struct WeightGradientOfRow {
  Permutation op;
  const std::int64_t* places;
  Move gradient;
  __host__ __device__ void operator()(std::int64_t row) const { gradient(row, op.InMask(places[row])); }
};

/// The same of an expert's rows, by the group's mask.
struct WeightGradientsOfExpert {
  Permutation op;
  const std::uint8_t* mask;
  Move gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t expert) const {
    const std::int64_t begin = expert * op.tokens;
    const auto is_chosen = [mask = mask](std::int64_t place) { return mask[place] != 0; };
    const auto start =
        team.Sum<std::int64_t>(0, begin, [&](std::int64_t place) { return std::int64_t{is_chosen(place) ? 1 : 0}; });
    team.EachCounted(begin, begin + op.tokens, is_chosen, [&](std::int64_t place, bool chosen, std::int64_t n) {
      if (chosen) {
        gradient(start + n, op.InMask(place));
      }
    });
  }
};

struct CountOne {
  std::int64_t count;
  std::int64_t* counts;
  __host__ __device__ void operator()(std::int64_t i) const { counts[i] = count; }
};

/// Row by row to where `targets` says.
struct PutRowAt {
  std::int64_t width;
  const std::int64_t* targets;
  Move move;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, offset = targets[row] * width - begin;
    team.Each(begin, begin + width, [&](auto at) { move(at, at + offset); });
  }
};

struct PutNumber {
  RowSort op;
  std::int64_t* order;
  __host__ __device__ void operator()(std::int64_t row) const { order[op.To(row)] = row; }
};

}  // namespace

void Permute(const Permutation& op, const ConstTensor& tokens, const ConstTensor& weights, const ConstTensor& mask,
             const Permuted& to, const Queue& queue) {
  TIDEMARK_CHECK(tokens.type.elements == op.tokens * op.width && weights.type.elements == op.tokens * op.experts);
  TIDEMARK_CHECK((mask.type == TensorType{DType::u8, op.tokens * op.experts}));
  const auto* chosen = Elements<std::uint8_t>(mask);
  auto *counts = Elements<std::int64_t>(to.counts), *order = Elements<std::int64_t>(to.token_order);
  EachRow(queue, op.own_experts(), CountExpert{op, chosen, counts});
  EachRow(queue, op.own_experts(), OrderExpert{op, chosen, counts, order, to.places, {weights, to.row_weights}});
  EachRow(queue, op.rows(), MoveRow{op.width, order, {}, {tokens, to.rows}});
}

void PermuteBackward(const Permutation& op, const ConstTensor& row_gradients, const ConstTensor& row_weight_gradients,
                     const ConstTensor& token_order, const ConstTensor& places, const Tensor& token_gradients,
                     const Tensor& weight_gradients, const Queue& queue) {
  TIDEMARK_CHECK(row_weight_gradients.type.elements == op.rows());
  TIDEMARK_CHECK(places.type.elements == op.places());
  TIDEMARK_CHECK(weight_gradients.type.elements == op.tokens * op.experts);
  Unpermute(op, row_gradients, token_order, token_gradients, queue);
  Zero(weight_gradients, queue);
  const Move gradient(row_weight_gradients, weight_gradients);
  if (places.type.dtype == DType::u8) {
    EachRow(queue, op.own_experts(), WeightGradientsOfExpert{op, Elements<std::uint8_t>(places), gradient});
  } else {
    EachElement(queue, op.rows(), WeightGradientOfRow{op, Elements<std::int64_t>(places), gradient});
  }
}

void Unpermute(const Permutation& op, const ConstTensor& rows, const ConstTensor& token_order, const Tensor& tokens,
               const Queue& queue) {
  TIDEMARK_CHECK(rows.type.elements == op.rows() * op.width && tokens.type.elements == op.tokens * op.width);
  TIDEMARK_CHECK(token_order.type.elements == op.rows());
  const std::int64_t chunk = TeamSize(queue) * kPack, chunks = (op.width + chunk - 1) / chunk;
  InArithmeticOf({rows.type, tokens.type}, [&]<class C>(C) {
    EachRow(queue, op.tokens * chunks,
            SumRowsOfToken<C>{op, rows, Elements<std::int64_t>(token_order), tokens, chunks, chunk});
  });
}

void UnpermuteBackward(const Permutation& op, const ConstTensor& token_gradients, const ConstTensor& token_order,
                       const Tensor& row_gradients, const Queue& queue) {
  TIDEMARK_CHECK(token_gradients.type.elements == op.tokens * op.width);
  TIDEMARK_CHECK(row_gradients.type.elements == op.rows() * op.width && token_order.type.elements == op.rows());
  EachRow(queue, op.rows(),
          MoveRow{op.width, Elements<std::int64_t>(token_order), {}, {token_gradients, row_gradients}});
}

void CountEvenly(std::int64_t rows, const Tensor& counts, const Queue& queue) {
  TIDEMARK_CHECK(counts.type.elements > 0 && rows % counts.type.elements == 0);
  EachElement(queue, counts.type.elements, CountOne{rows / counts.type.elements, Elements<std::int64_t>(counts)});
}

void SortRows(const RowSort& op, const ConstTensor& from, const Tensor& to, const Queue& queue) {
  TIDEMARK_CHECK(from.type.elements == op.all_rows() * op.width && to.type.elements == from.type.elements);
  EachRow(queue, op.all_rows(), MoveRow{op.width, nullptr, op, {from, to}});
}

void SortOrder(const RowSort& op, const Tensor& order, const Queue& queue) {
  TIDEMARK_CHECK((order.type == TensorType{DType::int64, op.all_rows()}));
  EachElement(queue, op.all_rows(), PutNumber{op, Elements<std::int64_t>(order)});
}

void GatherRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to, const Queue& queue) {
  const std::int64_t width = WidthOf(from, order, to);
  EachRow(queue, order.type.elements, MoveRow{width, Elements<std::int64_t>(order), {}, {from, to}});
}

void ScatterRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to, const Queue& queue) {
  const std::int64_t width = WidthOf(from, order, to);
  EachRow(queue, order.type.elements, PutRowAt{width, Elements<std::int64_t>(order), {from, to}});
}

}  // namespace tidemark::kernels::cuda
