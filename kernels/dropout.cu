// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/dropout_cuda.h"
#include "kernels/philox.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct ForwardElement {
  std::uint64_t first, offset, seed;
  std::uint64_t fewest;  ///< words of at least so much keep their elements
  C factor;
  Input<C> input;
  Output<C> output;
  std::uint8_t* mask;

  template <class At>
  __host__ __device__ void operator()(At at) const {
    const auto kept = Kept(at);
    Write(Map([](bool is_kept) { return static_cast<std::uint8_t>(is_kept); }, kept), mask, at);
    output.Set(at, Map([&](bool is_kept, C x) { return x * (is_kept ? factor : C(0)); }, kept, input[at]));
  }

  __host__ __device__ bool Kept(std::int64_t i) const {
    const std::uint64_t number = first + static_cast<std::uint64_t>(i);
    return (KeptOfGroup(number / 4) >> number % 4 & 1U) != 0;
  }
  __host__ __device__ Pack<bool> Kept(PackAt at) const {
    const std::uint64_t number = first + static_cast<std::uint64_t>(at.first), group = number / 4;
    unsigned kept = KeptOfGroup(group) | KeptOfGroup(group + 1) << 4U;
    if (number % 4 != 0) {
      kept |= KeptOfGroup(group + 2) << 8U;
    }
    kept >>= number % 4;
    return Map([&](std::int64_t i) { return (kept >> (i - at.first) & 1U) != 0; }, IndexOf(at));
  }

 private:
  /// A bit for each of the four elements of one Philox counter.
  __host__ __device__ unsigned KeptOfGroup(std::uint64_t group) const {
    std::uint32_t words[4] = {Low(group), High(group), Low(offset), High(offset)};
    std::uint32_t low_key = Low(seed), high_key = High(seed);
    TIDEMARK_UNROLL
    for (int round = 0; round < kPhiloxRounds; ++round, low_key += kLowKeyStep, high_key += kHighKeyStep) {
      PhiloxRound(words[0], words[1], words[2], words[3], low_key, high_key);
    }
    unsigned kept = 0;
    TIDEMARK_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      kept |= words[i] >= fewest ? 1U << i : 0U;
    }
    return kept;
  }
};

template <class C>
struct BackwardElement {
  C factor;
  Input<C> output_gradient;
  const std::uint8_t* mask;
  Output<C> input_gradient;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    const auto dx = [&](C dy, std::uint8_t is_kept) { return dy * (is_kept != 0 ? factor : C(0)); };
    input_gradient.Set(at, Map(dx, output_gradient[at], Read(mask, at)));
  }
};

}  // namespace

void DropoutForward(const Dropout& op, const ConstTensor& input, const Tensor& output, const Tensor& mask,
                    const Queue& queue) {
  const std::int64_t elements = input.type.elements;
  TIDEMARK_CHECK(op.p >= 0 && op.p < 1 && mask.type == DropoutOutputs(input.type).mask);
  TIDEMARK_CHECK(output.type.elements == elements);
  InArithmeticOf({input.type, output.type}, [&]<class C>(C) {
    EachElement(queue, elements,
                ForwardElement<C>{static_cast<std::uint64_t>(op.first), op.offset, op.seed,
                                  static_cast<std::uint64_t>(std::ceil(op.p * 0x1p32)), static_cast<C>(1 / (1 - op.p)),
                                  input, output, Elements<std::uint8_t>(mask)});
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
