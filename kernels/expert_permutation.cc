// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_permutation.h"

#include <algorithm>
#include <vector>

#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

using Places = std::vector<std::int64_t>;

const std::int64_t* CheckOrder(const Permutation& op, const ConstTensor& token_order) {
  TIDEMARK_CHECK(token_order.type.elements == op.rows());
  const auto* tokens = Elements<std::int64_t>(token_order);
  for (std::int64_t row = 0; row < op.rows(); ++row) {
    TIDEMARK_CHECK(tokens[row] >= 0 && tokens[row] < op.tokens);
  }
  return tokens;
}

/// Of the ones of a transposed mask.
Places PlacesOf(const Permutation& op, const ConstTensor& places) {
  TIDEMARK_CHECK(places.type.elements == op.places());
  Places found;
  if (places.type.dtype == DType::int64) {
    const auto* first = Elements<std::int64_t>(places);
    found.assign(first, first + op.rows());
    return found;
  }
  const auto* transposed = Elements<std::uint8_t>(places);
  for (std::int64_t place = 0; place < places.type.elements; ++place) {
    if (transposed[place] != 0) {
      found.push_back(place);
    }
  }
  TIDEMARK_CHECK(std::ssize(found) == op.rows());
  return found;
}

/// The group's mask, transposed, as PlacesOf reads it.
void PutPlaces(const Permutation& op, const std::uint8_t* mask, const Tensor& places) {
  const auto at = [&](std::int64_t place) { return mask[op.InMask(place)]; };
  const std::int64_t all = op.tokens * op.own_experts();
  if (places.type.dtype == DType::u8) {
    for (std::int64_t place = 0; place < all; ++place) {
      Elements<std::uint8_t>(places)[place] = at(place);
    }
    return;
  }
  auto *to = Elements<std::int64_t>(places), *end = to + op.places();
  for (const bool chosen : {true, false}) {
    for (std::int64_t place = 0; place < all && to != end; ++place) {
      if ((at(place) != 0) == chosen) {
        *to++ = place;
      }
    }
  }
}

ConstTensor Row(const Permutation& op, const ConstTensor& rows, std::int64_t row) {
  return Slice(rows, row * op.width, op.width);
}
Tensor Row(const Permutation& op, const Tensor& rows, std::int64_t row) {
  return Slice(rows, row * op.width, op.width);
}

}  // namespace

PermutationTypes PermutationOutputs(const Permutation& op, DType rows, DType weights, DType places) {
  return {{rows, op.rows() * op.width},
          {weights, op.rows()},
          {DType::int64, op.rows()},
          {places, op.places()},
          {DType::int64, op.own_experts()}};
}

void Permute(const Permutation& op, const ConstTensor& tokens, const ConstTensor& weights, const ConstTensor& mask,
             const Permuted& to) {
  TIDEMARK_CHECK(tokens.type.elements == op.tokens * op.width && weights.type.elements == op.tokens * op.experts);
  TIDEMARK_CHECK((mask.type == TensorType{DType::u8, op.tokens * op.experts}));
  PutPlaces(op, Elements<std::uint8_t>(mask), to.places);
  auto* counts = Elements<std::int64_t>(to.counts);
  std::fill_n(counts, op.own_experts(), 0);
  std::int64_t row = 0;
  for (const std::int64_t place : PlacesOf(op, to.places)) {
    const std::int64_t token = place % op.tokens;
    Elements<std::int64_t>(to.token_order)[row] = token;
    ++counts[place / op.tokens];
    Copy(Row(op, tokens, token), Row(op, to.rows, row));
    Copy(Slice(weights, op.InMask(place), 1), Slice(to.row_weights, row, 1));
    ++row;
  }
}

void PermuteBackward(const Permutation& op, const ConstTensor& row_gradients, const ConstTensor& row_weight_gradients,
                     const ConstTensor& token_order, const ConstTensor& places, const Tensor& token_gradients,
                     const Tensor& weight_gradients) {
  TIDEMARK_CHECK(row_weight_gradients.type.elements == op.rows());
  TIDEMARK_CHECK(weight_gradients.type.elements == op.tokens * op.experts);
  Unpermute(op, row_gradients, token_order, token_gradients);
  Zero(weight_gradients);
  std::int64_t row = 0;
  for (const std::int64_t place : PlacesOf(op, places)) {
    Copy(Slice(row_weight_gradients, row, 1), Slice(weight_gradients, op.InMask(place), 1));
    ++row;
  }
}

void Unpermute(const Permutation& op, const ConstTensor& rows, const ConstTensor& token_order, const Tensor& tokens) {
  TIDEMARK_CHECK(rows.type.elements == op.rows() * op.width && tokens.type.elements == op.tokens * op.width);
  const std::int64_t* order = CheckOrder(op, token_order);
  std::vector<std::vector<ConstTensor>> addends(static_cast<std::size_t>(op.tokens));
  for (std::int64_t row = 0; row < op.rows(); ++row) {
    addends[static_cast<std::size_t>(order[row])].push_back(Row(op, rows, row));
  }
  for (std::int64_t token = 0; token < op.tokens; ++token) {
    const std::vector<ConstTensor>& own = addends[static_cast<std::size_t>(token)];
    own.empty() ? Zero(Row(op, tokens, token)) : Add(own, Row(op, tokens, token));
  }
}

void UnpermuteBackward(const Permutation& op, const ConstTensor& token_gradients, const ConstTensor& token_order,
                       const Tensor& row_gradients) {
  TIDEMARK_CHECK(token_gradients.type.elements == op.tokens * op.width);
  TIDEMARK_CHECK(row_gradients.type.elements == op.rows() * op.width);
  const std::int64_t* order = CheckOrder(op, token_order);
  for (std::int64_t row = 0; row < op.rows(); ++row) {
    Copy(Row(op, token_gradients, order[row]), Row(op, row_gradients, row));
  }
}

void CountEvenly(std::int64_t rows, const Tensor& counts) {
  TIDEMARK_CHECK(counts.type.elements > 0 && rows % counts.type.elements == 0);
  std::fill_n(Elements<std::int64_t>(counts), counts.type.elements, rows / counts.type.elements);
}

void SortRows(const RowSort& op, const ConstTensor& from, const Tensor& to) {
  TIDEMARK_CHECK(from.type.elements == op.all_rows() * op.width && to.type.elements == from.type.elements);
  for (std::int64_t row = 0; row < op.all_rows(); ++row) {
    Copy(Slice(from, row * op.width, op.width), Slice(to, op.To(row) * op.width, op.width));
  }
}

void SortOrder(const RowSort& op, const Tensor& order) {
  TIDEMARK_CHECK((order.type == TensorType{DType::int64, op.all_rows()}));
  auto* rows = Elements<std::int64_t>(order);
  for (std::int64_t row = 0; row < op.all_rows(); ++row) {
    rows[op.To(row)] = row;
  }
}

void GatherRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to) {
  const std::int64_t width = WidthOf(from, order, to);
  const auto* rows = Elements<std::int64_t>(order);
  for (std::int64_t row = 0; row < order.type.elements; ++row) {
    Copy(Slice(from, rows[row] * width, width), Slice(to, row * width, width));
  }
}

void ScatterRows(const ConstTensor& from, const ConstTensor& order, const Tensor& to) {
  const std::int64_t width = WidthOf(from, order, to);
  const auto* rows = Elements<std::int64_t>(order);
  for (std::int64_t row = 0; row < order.type.elements; ++row) {
    Copy(Slice(from, row * width, width), Slice(to, rows[row] * width, width));
  }
}

}  // namespace tidemark::kernels
