// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout_cuda.h"
#include "kernels/philox.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// The four elements of one Philox counter, those that are the tensor's.
template <class C>
struct ForwardGroup {
  Dropout op;
  std::int64_t elements;
  Input<C> input;
  Output<C> output;
  std::uint8_t* mask;

  __host__ __device__ void operator()(std::int64_t i) const {
    const auto group = static_cast<std::uint64_t>(op.first / 4 + i);
    std::uint32_t words[4] = {Low(group), High(group), Low(op.offset), High(op.offset)};
    std::uint32_t low_key = Low(op.seed), high_key = High(op.seed);
    for (int round = 0; round < kPhiloxRounds; ++round, low_key += kLowKeyStep, high_key += kHighKeyStep) {
      PhiloxRound(words[0], words[1], words[2], words[3], low_key, high_key);
    }
    const C factor = static_cast<C>(1 / (1 - op.p));
    for (int k = 0; k < 4; ++k) {
      const std::int64_t at = 4 * i + k - op.first % 4;
      if (at >= 0 && at < elements) {
        const bool is_kept = static_cast<double>(words[k]) >= op.p * 0x1p32;
        mask[at] = is_kept ? 1 : 0;
        output.Set(at, input[at] * (is_kept ? factor : C(0)));
      }
    }
  }
};

template <class C>
struct BackwardElement {
  C factor;
  Input<C> output_gradient;
  const std::uint8_t* mask;
  Output<C> input_gradient;
  __host__ __device__ void operator()(std::int64_t i) const {
    input_gradient.Set(i, output_gradient[i] * (mask[i] != 0 ? factor : C(0)));
  }
};

}  // namespace

void DropoutForward(const Dropout& op, const ConstTensor& input, const Tensor& output, const Tensor& mask,
                    const Queue& queue) {
  const std::int64_t elements = input.type.elements;
  TIDEMARK_CHECK(op.p >= 0 && op.p < 1 && mask.type == DropoutOutputs(input.type).mask);
  TIDEMARK_CHECK(output.type.elements == elements);
  InArithmeticOf({input.type, output.type}, [&]<class C>(C) {
    EachElement(queue, (op.first % 4 + elements + 3) / 4,
                ForwardGroup<C>{op, elements, input, output, Elements<std::uint8_t>(mask)});
  });
}

void DropoutBackward(const Dropout& op, const ConstTensor& output_gradient, const ConstTensor& mask,
                     const Tensor& input_gradient, const Queue& queue) {
  TIDEMARK_CHECK(mask.type == DropoutOutputs(output_gradient.type).mask);
  TIDEMARK_CHECK(input_gradient.type.elements == output_gradient.type.elements);
  InArithmeticOf({output_gradient.type, input_gradient.type}, [&]<class C>(C) {
    EachElement(queue, input_gradient.type.elements,
                BackwardElement<C>{static_cast<C>(1 / (1 - op.p)), output_gradient, Elements<std::uint8_t>(mask),
                                   input_gradient});
  });
}

}  // namespace tidemark::kernels::cuda
