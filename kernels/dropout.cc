// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include "kernels/philox.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// The words of kGroups counters in a row, round by round for all of them, so that a round is vectors.
class Words {
 public:
  static constexpr std::int64_t kGroups = 256;

  Words(const Dropout& op, std::uint64_t first_group) {
    for (std::int64_t i = 0; i < kGroups; ++i) {
      const std::uint64_t group = first_group + static_cast<std::uint64_t>(i);
      words_[0][i] = Low(group);
      words_[1][i] = High(group);
      words_[2][i] = Low(op.offset);
      words_[3][i] = High(op.offset);
    }
    std::uint32_t low_key = Low(op.seed), high_key = High(op.seed);
    for (int round = 0; round < kPhiloxRounds; ++round, low_key += kLowKeyStep, high_key += kHighKeyStep) {
      Each(kGroups, [this, low_key, high_key](std::int64_t i) {
        PhiloxRound(words_[0][i], words_[1][i], words_[2][i], words_[3][i], low_key, high_key);
      });
    }
  }
  std::uint32_t At(std::int64_t element) const { return words_[element % 4][element / 4]; }

 private:
  std::uint32_t words_[4][kGroups];
};

void MakeMask(const Dropout& op, std::int64_t elements, std::uint8_t* kept) {
  const double threshold = op.p * 0x1p32;
  const std::int64_t before = op.first % 4;  // of the first group, another tensor's elements
  for (std::int64_t begin = -before; begin < elements; begin += 4 * Words::kGroups) {
    const Words words(op, static_cast<std::uint64_t>((op.first + begin) / 4));
    const std::int64_t end = std::min(elements, begin + 4 * Words::kGroups);
    for (std::int64_t i = std::max<std::int64_t>(begin, 0); i < end; ++i) {
      kept[i] = static_cast<double>(words.At(i - begin)) >= threshold ? 1 : 0;
    }
  }
}

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

std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    PhiloxRound(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
    key[0] += kLowKeyStep;
    key[1] += kHighKeyStep;
  }
  return counter;
}

DropoutTypes DropoutOutputs(const TensorType& input) { return {input, {DType::u8, input.elements}}; }

void DropoutForward(const Dropout& op, const ConstTensor& input, const Tensor& output, const Tensor& mask) {
  TIDEMARK_CHECK(op.p >= 0 && op.p < 1 && mask.type == DropoutOutputs(input.type).mask);
  TIDEMARK_CHECK(output.type.elements == input.type.elements);
  auto* kept = Elements<std::uint8_t>(mask);
  MakeMask(op, mask.type.elements, kept);
  Apply(op, input, kept, output);
}

void DropoutBackward(const Dropout& op, const ConstTensor& output_gradient, const ConstTensor& mask,
                     const Tensor& input_gradient) {
  TIDEMARK_CHECK(mask.type == DropoutOutputs(output_gradient.type).mask);
  TIDEMARK_CHECK(input_gradient.type.elements == output_gradient.type.elements);
  Apply(op, output_gradient, Elements<std::uint8_t>(mask), input_gradient);
}

}  // namespace tidemark::kernels
