// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_routing_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

constexpr Routing kRoutings[] = {{1, 1, 1}, {3, 4, 2}, {33, 8, 8}, {40, 5, 2}, {5, 300, 3}};

template <class Body>
void EachRouting(Body body) {
  for (const Routing& op : kRoutings) {
    SCOPED_TRACE(std::to_string(op.tokens) + " tokens to " + std::to_string(op.per_token) + " of " +
                 std::to_string(op.experts));
    EachDType([&](DType dtype) { body(op, dtype); });
  }
}

Numbers ChosenBy(const Routing& op, const Numbers& logits) {
  Numbers chosen(RoutingOutputs(op, logits.type().dtype).chosen);
  kernels::ChooseExperts(op, logits, chosen);
  return chosen;
}

void CheckChoose(const Place& place) {
  EachRouting([&](const Routing& op, DType dtype) {
    Numbers few(TensorType{dtype, op.tokens * op.experts});  // of which many are equal
    for (std::int64_t i = 0; i < few.type().elements; ++i) {
      few.Set(i, static_cast<double>(i * i % 7));
    }
    for (const Numbers& logits : {Some(dtype, op.tokens * op.experts, 1), few}) {
      Compare(place, {Read(logits), Written(RoutingOutputs(op, dtype).chosen, 0)}, &kernels::ChooseExperts,
              &cuda::ChooseExperts, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
    }
  });
}

void CheckAssign(const Place& place) {
  for (const Routing& op : {Routing{1, 1, 1}, Routing{40, 6, 2}, Routing{300, 8, 3}}) {
    for (const std::int64_t groups : {std::int64_t{1}, std::int64_t{2}, op.experts}) {
      if (op.experts % groups == 0) {
        Compare(place, {Written(RoutingOutputs(op, DType::fp32).chosen, 0)}, &kernels::AssignRoundRobin,
                &cuda::AssignRoundRobin, [&](auto run, const Tensors& t) { run(op, groups, t[0]); });
      }
    }
  }
}

void CheckWeigh(const Place& place) {
  EachRouting([&](const Routing& op, DType dtype) {
    const Numbers logits = Some(dtype, op.tokens * op.experts, 1);
    const RoutingTypes types = RoutingOutputs(op, dtype);
    const double lost = static_cast<double>(op.per_token) + 16;  // a softmax of numbers that are 2 apart at most
    const std::vector<Operand> operands = {Read(logits), Read(ChosenBy(op, logits)), Written(types.weights, lost),
                                           Written(types.mask, 0), Written(types.scores, lost)};
    Compare(place, operands, &kernels::WeighExperts, &cuda::WeighExperts,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4]); });
  });
}

void CheckBackward(const Place& place) {
  EachRouting([&](const Routing& op, DType dtype) {
    const Numbers logits = Some(dtype, op.tokens * op.experts, 1);
    const RoutingTypes types = RoutingOutputs(op, dtype);
    const double chosen = static_cast<double>(op.per_token);
    const std::vector<Operand> operands = {
        Read(Some(dtype, types.weights.elements, 2)), Read(Some(types.scores.dtype, types.scores.elements, 3)),
        Read(ChosenBy(op, logits)), Written(types.weights, (chosen + 4) * (chosen + 2))};
    Compare(place, operands, &kernels::RoutingBackward, &cuda::RoutingBackward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3]); });
  });
}

}  // namespace

std::vector<Case> ExpertRoutingCases() {
  return {{"ChooseExperts", CheckChoose},
          {"AssignRoundRobin", CheckAssign},
          {"WeighExperts", CheckWeigh},
          {"RoutingBackward", CheckBackward}};
}

}  // namespace tidemark::kernels::cuda
