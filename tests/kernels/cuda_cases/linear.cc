// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Outputs of a weight, how many of each part.
struct Problem {
  Linear op;
  std::vector<std::int64_t> parts;
  DType dtype = DType::fp32, wide = DType::fp32;  ///< of activations and weights; of a main gradient

  std::vector<Operand> OutputGradients() const {
    std::vector<Operand> operands;
    for (const std::int64_t part : parts) {
      operands.push_back(Read(Some(dtype, op.rows * part, 10 + static_cast<unsigned>(operands.size()))));
    }
    return operands;
  }
  Numbers Input() const { return Some(dtype, op.rows * op.in, 1); }
  Numbers Weight() const { return Some(dtype, op.out * op.in, 2); }
};

/// The last `count` of a call's tensors.
template <class T>
std::vector<T> LastOf(const Tensors& tensors, std::size_t count) {
  return {tensors.end() - static_cast<std::ptrdiff_t>(count), tensors.end()};
}

std::vector<Operand> Join(std::vector<Operand> first, const std::vector<Operand>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

template <class Body>
void EachProblem(Body body) {
  const std::vector<std::vector<std::int64_t>> all_parts = {{1}, {40}, {16, 8, 8}, {33, 1, 7}};
  for (const std::vector<std::int64_t>& parts : all_parts) {
    std::int64_t out = 0;
    for (const std::int64_t part : parts) {
      out += part;
    }
    for (const RowsOf& size : {RowsOf{1, 1}, RowsOf{5, 9}, RowsOf{67, 33}, RowsOf{32, 64}}) {
      SCOPED_TRACE(std::to_string(size.rows) + " rows of " + std::to_string(size.width) + " to " + std::to_string(out));
      EachDType([&](DType dtype) {
        const Linear op{.rows = size.rows, .in = size.width, .out = out};
        body(Problem{op, parts, dtype, dtype});
        if (StatisticsOf(dtype) != dtype) {
          body(Problem{op, parts, dtype, StatisticsOf(dtype)});
        }
      });
    }
  }
}

void CheckForward(const Place& place) {
  EachProblem([&](const Problem& p) {
    for (const bool with_bias : {false, true}) {
      std::vector<Operand> operands = {Read(p.Input()), Read(p.Weight()), Read(Some(p.wide, p.op.out, 3))};
      for (const std::int64_t part : p.parts) {
        operands.push_back(Product(Numbers(LinearOutput(p.op, p.dtype, part)), ProductLost(p.op.in), with_bias));
      }
      Compare(place, operands, &kernels::LinearForward, &cuda::LinearForward, [&](auto run, const Tensors& t) {
        const auto outputs = LastOf<Tensor>(t, p.parts.size());
        run(p.op, t[0], t[1], with_bias ? std::optional<ConstTensor>(t[2]) : std::nullopt,
            std::span<const Tensor>(outputs));
      });
    }
  });
}

void CheckInputGradient(const Place& place) {
  EachProblem([&](const Problem& p) {  // of several outputs: one sum, of all of them
    const std::vector<Operand> operands =
        Join({Read(p.Weight()), Written(LinearInputGradientOutput(p.op, p.dtype), ProductLost(p.op.out))},
             p.OutputGradients());
    Compare(place, operands, &kernels::LinearInputGradient, &cuda::LinearInputGradient,
            [&](auto run, const Tensors& t) {
              const auto gradients = LastOf<ConstTensor>(t, p.parts.size());
              run(p.op, std::span<const ConstTensor>(gradients), t[0], t[1]);
            });
  });
}

void CheckWeightGradient(const Place& place) {
  EachProblem([&](Problem p) {
    for (const bool accumulate : {false, true}) {
      p.op.accumulate = accumulate;
      const std::vector<Operand> operands =
          Join({Read(p.Input()), Product(Some(p.wide, p.op.out * p.op.in, 4), ProductLost(p.op.rows), accumulate)},
               p.OutputGradients());
      Compare(place, operands, &kernels::LinearWeightGradient, &cuda::LinearWeightGradient,
              [&](auto run, const Tensors& t) {
                const auto gradients = LastOf<ConstTensor>(t, p.parts.size());
                run(p.op, t[0], std::span<const ConstTensor>(gradients), t[1]);
              });
    }
  });
}

void CheckBiasGradient(const Place& place) {
  const auto check = [&](Problem p) {
    for (const bool accumulate : {false, true}) {
      p.op.accumulate = accumulate;
      const std::vector<Operand> operands =
          Join({Updated(Some(p.wide, p.op.out, 4), ProductLost(p.op.rows))}, p.OutputGradients());
      Compare(place, operands, &kernels::LinearBiasGradient, &cuda::LinearBiasGradient,
              [&](auto run, const Tensors& t) {
                const auto gradients = LastOf<ConstTensor>(t, p.parts.size());
                run(p.op, std::span<const ConstTensor>(gradients), t[0]);
              });
    }
  };
  EachProblem(check);
  check({{.rows = 0, .in = 3, .out = 7}, {7}});  // no rows sum to zero, or to what is there
}

void CheckAddBias(const Place& place) {
  EachProblem([&](const Problem& p) {  // one sum of size 2
    const std::int64_t elements = p.op.rows * p.op.out;
    const std::vector<Operand> operands = {Updated(Some(p.dtype, elements, 1), 2), Read(Some(p.wide, p.op.out, 2)),
                                           Written({p.dtype, elements}, 2)};
    Compare(place, operands, &kernels::AddBias, &cuda::AddBias, [&](auto run, const Tensors& t) {
      run(p.op, t[0], t[1], t[2]);
      run(p.op, t[0], t[1], t[0]);  // in place
    });
  });
}

}  // namespace

std::vector<Case> LinearCases() {
  return {{"LinearForward", CheckForward},
          {"LinearInputGradient", CheckInputGradient},
          {"LinearWeightGradient", CheckWeightGradient},
          {"LinearBiasGradient", CheckBiasGradient},
          {"AddBias", CheckAddBias}};
}

}  // namespace tidemark::kernels::cuda
