// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

std::uint32_t Low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t High(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

/// The words of elements one after the other.
class Words {
 public:
  explicit Words(const Dropout& op) : op_(op) {}

  std::uint32_t At(std::int64_t element) {
    const auto number = static_cast<std::uint64_t>(op_.first + element);
    if (number / 4 != group_) {
      group_ = number / 4;
      words_ = Philox({Low(group_), High(group_), Low(op_.offset), High(op_.offset)}, {Low(op_.seed), High(op_.seed)});
    }
    return words_[number % 4];
  }

 private:
  const Dropout& op_;
  std::uint64_t group_ = ~std::uint64_t{0};
  std::array<std::uint32_t, 4> words_{};
};

/// y = x mask / (1 - p).
void Apply(const Dropout& op, const ConstTensor& input, const std::uint8_t* mask, const Tensor& output) {
  InArithmeticOf({input.type, output.type}, [&]<class C>(C) {
    Reader<C> inputs(input, kStretch);
    Writer<C> outputs(output, kStretch);
    EachStretch(output.type.elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count,
           [x = inputs.At(begin, count), y = outputs.At(begin, count), kept = mask + begin,
            factor = static_cast<C>(1 / (1 - op.p))](std::int64_t i) { y[i] = x[i] * (kept[i] != 0 ? factor : C(0)); });
      outputs.Done(begin, count);
    });
  });
}

}  // namespace

// Each round multiplies two of the words by constants of the paper, mixes the upper halves with the other two and the
// key, and the key advances by the golden ratio and by sqrt(3) - 1.
std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * counter[0], second = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {High(second) ^ counter[1] ^ key[0], Low(second), High(first) ^ counter[3] ^ key[1], Low(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

DropoutTypes DropoutOutputs(const TensorType& input) { return {input, {DType::u8, input.elements}}; }

void DropoutForward(const Dropout& op, const ConstTensor& input, const Tensor& output, const Tensor& mask) {
  TIDEMARK_CHECK(op.p >= 0 && op.p < 1 && mask.type == DropoutOutputs(input.type).mask);
  TIDEMARK_CHECK(output.type.elements == input.type.elements);
  auto* kept = Elements<std::uint8_t>(mask);
  const double threshold = op.p * 0x1p32;
  Words words(op);
  for (std::int64_t i = 0; i < mask.type.elements; ++i) {
    kept[i] = static_cast<double>(words.At(i)) >= threshold ? 1 : 0;
  }
  Apply(op, input, kept, output);
}

void DropoutBackward(const Dropout& op, const ConstTensor& output_gradient, const ConstTensor& mask,
                     const Tensor& input_gradient) {
  TIDEMARK_CHECK(mask.type == DropoutOutputs(output_gradient.type).mask);
  TIDEMARK_CHECK(input_gradient.type.elements == output_gradient.type.elements);
  Apply(op, output_gradient, Elements<std::uint8_t>(mask), input_gradient);
}

}  // namespace tidemark::kernels
