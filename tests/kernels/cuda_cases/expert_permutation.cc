// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_permutation_cuda.h"

#include "kernels/expert_routing.h"
#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Experts of a permutation's tokens: of all of them those that random logits choose, of one of several groups those
/// of AssignRoundRobin, of which each group has as many.
Numbers MaskOf(const Permutation& op) {
  const Routing routing{op.tokens, op.experts, op.per_token};
  const Numbers logits = Some(DType::fp32, op.tokens * op.experts, 7);
  const RoutingTypes types = RoutingOutputs(routing, DType::fp32);
  Numbers chosen(types.chosen), weights(types.weights), mask(types.mask), scores(types.scores);
  op.groups > 1 ? kernels::AssignRoundRobin(routing, op.groups, chosen)
                : kernels::ChooseExperts(routing, logits, chosen);
  kernels::WeighExperts(routing, logits, chosen, weights, mask, scores);
  return mask;
}

/// One token, more tokens than a block looks at at once, more columns than it has packs, groups of experts. Calls
/// `body(op, dtype, dtype of weights, dtype of places)`.
template <class Body>
void EachPermutation(Body body) {
  for (const Permutation& op :
       {Permutation{1, 1, 1, 1}, Permutation{3, 4, 2, 33}, Permutation{520, 3, 2, 3}, Permutation{5, 7, 3, 2077},
        Permutation{40, 20, 20, 9}, Permutation{12, 6, 2, 20, 3, 1}, Permutation{300, 4, 2, 5, 2, 1}}) {
    SCOPED_TRACE(std::to_string(op.tokens) + " tokens of " + std::to_string(op.width) + " to " +
                 std::to_string(op.per_token) + " of " + std::to_string(op.experts));
    EachDType([&](DType dtype) {
      body(op, dtype, dtype, DType::int64);
      body(op, dtype, StatisticsOf(dtype), DType::u8);
      Permutation ones = op;
      ones.ones_only = true;
      body(ones, dtype, StatisticsOf(dtype), DType::int64);
    });
  }
}

/// What the truth makes of random tokens and weights.
struct Moved {
  Numbers tokens, weights, mask, rows, row_weights, order, places, counts;

  Moved(const Permutation& op, DType dtype, DType of_weights, DType of_places)
      : tokens(Some(dtype, op.tokens * op.width, 1)),
        weights(Some(of_weights, op.tokens * op.experts, 2)),
        mask(MaskOf(op)) {
    const PermutationTypes types = PermutationOutputs(op, dtype, of_weights, of_places);
    rows = Numbers(types.rows);
    row_weights = Numbers(types.row_weights);
    order = Numbers(types.token_order);
    places = Numbers(types.places);
    counts = Numbers(types.counts);
    kernels::Permute(op, tokens, weights, mask, {rows, row_weights, order, places, counts});
  }
};

/// A sum of a token's rows.
double SumOfTokenLost(const Permutation& op) { return static_cast<double>(op.per_token * op.per_token); }

void CheckPermute(const Place& place) {
  EachPermutation([&](const Permutation& op, DType dtype, DType of_weights, DType of_places) {
    const Moved moved(op, dtype, of_weights, of_places);
    const std::vector<Operand> operands = {Read(moved.tokens),
                                           Read(moved.weights),
                                           Read(moved.mask),
                                           Written(moved.rows.type(), 0),
                                           Written(moved.row_weights.type(), 0),
                                           Written(moved.order.type(), 0),
                                           Written(moved.places.type(), 0),
                                           Written(moved.counts.type(), 0)};
    Compare(place, operands, &kernels::Permute, &cuda::Permute, [&](auto run, const Tensors& t) {
      run(op, t[0], t[1], t[2], Permuted{t[3], t[4], t[5], t[6], t[7]});
    });
  });
}

void CheckPermuteBackward(const Place& place) {
  EachPermutation([&](const Permutation& op, DType dtype, DType of_weights, DType of_places) {
    const Moved moved(op, dtype, of_weights, of_places);
    const std::vector<Operand> operands = {Read(Some(dtype, op.rows() * op.width, 3)),
                                           Read(Some(of_weights, op.rows(), 4)),
                                           Read(moved.order),
                                           Read(moved.places),
                                           Written(moved.tokens.type(), SumOfTokenLost(op)),
                                           Written(moved.weights.type(), 0)};
    Compare(place, operands, &kernels::PermuteBackward, &cuda::PermuteBackward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4], t[5]); });
  });
}

void CheckUnpermute(const Place& place) {
  EachPermutation([&](const Permutation& op, DType dtype, DType of_weights, DType of_places) {
    const Moved moved(op, dtype, of_weights, of_places);
    const std::vector<Operand> operands = {Read(Some(dtype, op.rows() * op.width, 3)), Read(moved.order),
                                           Written(moved.tokens.type(), SumOfTokenLost(op))};
    Compare(place, operands, &kernels::Unpermute, &cuda::Unpermute,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckUnpermuteBackward(const Place& place) {
  EachPermutation([&](const Permutation& op, DType dtype, DType of_weights, DType of_places) {
    const Moved moved(op, dtype, of_weights, of_places);
    Compare(place, {Read(moved.tokens), Read(moved.order), Written(moved.rows.type(), 0)}, &kernels::UnpermuteBackward,
            &cuda::UnpermuteBackward, [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckCountEvenly(const Place& place) {
  for (const std::int64_t experts : {1, 7, 300}) {
    Compare(place, {Written({DType::int64, experts}, 0)}, &kernels::CountEvenly, &cuda::CountEvenly,
            [&](auto run, const Tensors& t) { run(5 * experts, t[0]); });
  }
}

void CheckSortRows(const Place& place) {
  for (const RowSort& op : {RowSort{1, 1, 1, 1}, RowSort{2, 3, 4, 33}, RowSort{3, 2, 1, 300}, RowSort{4, 4, 20, 1}}) {
    EachDType([&](DType dtype) {
      const std::int64_t elements = op.all_rows() * op.width;
      Compare(place, {Read(Some(dtype, elements, 1)), Written({dtype, elements}, 0)}, &kernels::SortRows,
              &cuda::SortRows, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
    });
  }
}

void CheckSortOrder(const Place& place) {
  for (const RowSort& op : {RowSort{1, 1, 1, 1}, RowSort{2, 3, 4, 1}, RowSort{4, 4, 20, 1}}) {
    Compare(place, {Written({DType::int64, op.all_rows()}, 0)}, &kernels::SortOrder, &cuda::SortOrder,
            [&](auto run, const Tensors& t) { run(op, t[0]); });
  }
}

/// Some order, and rows of these widths.
template <class Run>
void EachOrder(Run run) {
  for (const RowSort& op : {RowSort{1, 1, 1, 1}, RowSort{2, 3, 4, 33}, RowSort{3, 2, 1, 300}, RowSort{4, 4, 20, 1}}) {
    Numbers order(TensorType{DType::int64, op.all_rows()});
    SortOrder(op, order);
    EachDType([&](DType dtype) { run(order, Some(dtype, op.all_rows() * op.width, 1)); });
  }
}

void CheckGatherRows(const Place& place) {
  EachOrder([&](const Numbers& order, const Numbers& rows) {
    Compare(place, {Read(rows), Read(order), Written(rows.type(), 0)}, &kernels::GatherRows, &cuda::GatherRows,
            [&](auto run, const Tensors& t) { run(t[0], t[1], t[2]); });
  });
}

void CheckScatterRows(const Place& place) {
  EachOrder([&](const Numbers& order, const Numbers& rows) {
    Compare(place, {Read(rows), Read(order), Written(rows.type(), 0)}, &kernels::ScatterRows, &cuda::ScatterRows,
            [&](auto run, const Tensors& t) { run(t[0], t[1], t[2]); });
  });
}

}  // namespace

std::vector<Case> ExpertPermutationCases() {
  return {{"Permute", CheckPermute},         {"PermuteBackward", CheckPermuteBackward},
          {"Unpermute", CheckUnpermute},     {"UnpermuteBackward", CheckUnpermuteBackward},
          {"CountEvenly", CheckCountEvenly}, {"SortRows", CheckSortRows},
          {"SortOrder", CheckSortOrder},     {"GatherRows", CheckGatherRows},
          {"ScatterRows", CheckScatterRows}};
}

}  // namespace tidemark::kernels::cuda
