// SPDX-License-Identifier: Apache-2.0
#include "kernels/info_nce_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Queries and passages in a tensor each, or rank by rank in one.
struct Problem {
  InfoNce op;
  bool is_one_tensor = false;
  DType dtype = DType::fp32;

  std::int64_t queries() const { return (is_one_tensor ? op.rows() + op.columns() : op.rows()) * op.width; }
  std::int64_t passages() const { return (is_one_tensor ? op.rows() + op.columns() : op.columns()) * op.width; }
  /// Of products of n numbers, stored and then divided.
  double Lost(std::int64_t n) const {
    return (ProductLost(n) + (StoredLost(dtype) + 2) * static_cast<double>(n)) / op.temperature;
  }
};

template <class Body>
void EachProblem(Body body) {
  for (const InfoNce& op :
       {InfoNce{.batch = 1, .width = 1}, InfoNce{.ranks = 2, .batch = 3, .targets = 2, .width = 5, .temperature = 0.5},
        InfoNce{.ranks = 4, .batch = 8, .width = 32, .temperature = 0.07},
        InfoNce{.ranks = 3, .batch = 7, .targets = 3, .width = 67}}) {
    for (const bool is_one_tensor : {false, true}) {
      SCOPED_TRACE(std::to_string(op.rows()) + (is_one_tensor ? " queries beside passages" : " queries"));
      EachDType([&](DType dtype) { body(Problem{op, is_one_tensor, dtype}); });
    }
  }
}

void CheckLabels(const Place& place) {
  for (const InfoNce& op : {InfoNce{}, InfoNce{.ranks = 3, .batch = 100, .targets = 7}}) {
    Compare(place, {Written(InfoNceLabelsOutput(op), 0)}, &kernels::InfoNceLabels, &cuda::InfoNceLabels,
            [&](auto run, const Tensors& t) { run(op, t[0]); });
  }
}

void CheckForward(const Place& place) {
  EachProblem([&](const Problem& p) {
    const std::vector<Operand> operands = {Read(Some(p.dtype, p.queries(), 1)), Read(Some(p.dtype, p.passages(), 2)),
                                           Written(SimilarityOutput(p.op, p.dtype), p.Lost(p.op.width))};
    Compare(place, operands, &kernels::SimilarityForward, &cuda::SimilarityForward,
            [&](auto run, const Tensors& t) { run(p.op, t[0], t[p.is_one_tensor ? 0 : 1], t[2]); });
  });
}

void CheckBackward(const Place& place) {
  EachProblem([&](const Problem& p) {
    const std::int64_t most = std::max(p.op.rows(), p.op.columns());
    std::vector<Operand> operands = {Read(Some(p.dtype, p.op.rows() * p.op.columns(), 1)),
                                     Read(Some(p.dtype, p.queries(), 2)), Read(Some(p.dtype, p.passages(), 3)),
                                     Written({p.dtype, p.queries()}, p.Lost(most))};
    if (!p.is_one_tensor) {
      operands.push_back(Written({p.dtype, p.passages()}, p.Lost(most)));
    }
    Compare(place, operands, &kernels::SimilarityBackward, &cuda::SimilarityBackward, [&](auto run, const Tensors& t) {
      run(p.op, t[0], t[1], t[p.is_one_tensor ? 1 : 2], t[3], t[p.is_one_tensor ? 3 : 4]);
    });
  });
}

void CheckSurrogate(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : {0, 1, 257, 5003, 40001}) {  // the last: several teams
      const double lost = (SumLost(n) + 1) * static_cast<double>(n);
      Compare(place, {Read(Some(dtype, n, 1)), Read(Some(DType::fp32, n, 2)), Written({StatisticsOf(dtype), 1}, lost)},
              &kernels::SurrogateForward, &cuda::SurrogateForward,
              [](auto run, const Tensors& t) { run(t[0], t[1], t[2]); });
    }
  });
}

template <class Body>
void EachPool(Body body) {
  for (const Pool& op : {Pool{1, 1, 1}, Pool{3, 1, 5}, Pool{5, 7, 33}, Pool{2, 300, 2}}) {
    EachDType([&](DType dtype) { body(op, dtype); });
  }
}

void CheckPool(const Place& place) {
  EachPool([&](const Pool& op, DType dtype) {
    const Numbers tokens = Numbers::Random(PoolGradientOutput(op, dtype), 1);
    Compare(place, {Read(tokens), Written(PoolOutput(op, dtype), 0)}, &kernels::PoolForward, &cuda::PoolForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
  });
}

void CheckPoolBackward(const Place& place) {
  EachPool([&](const Pool& op, DType dtype) {
    const Numbers pooled = Numbers::Random(PoolOutput(op, dtype), 1);
    Compare(place, {Read(pooled), Written(PoolGradientOutput(op, dtype), 0)}, &kernels::PoolBackward,
            &cuda::PoolBackward, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
  });
}

}  // namespace

std::vector<Case> InfoNceCases() {
  return {
      {"InfoNceLabels", CheckLabels},       {"SimilarityForward", CheckForward}, {"SimilarityBackward", CheckBackward},
      {"SurrogateForward", CheckSurrogate}, {"PoolForward", CheckPool},          {"PoolBackward", CheckPoolBackward}};
}

}  // namespace tidemark::kernels::cuda
