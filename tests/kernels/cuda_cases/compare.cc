// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda_cases/compare.h"

#include <algorithm>
#include <memory>

#include "tests/base/sanitizer.h"

namespace tidemark::kernels::cuda {
namespace {

/// Whether special numbers are put into all operands at once, and not into one after the other. Sanitizers look at how
/// memory and integers are used, which is the same wherever such a number stands: that it is met is enough for them.
constexpr bool kAtOnce = kSanitized;

bool IsFloating(const Numbers& numbers) {
  const DType dtype = numbers.type().dtype;
  return dtype != DType::int64 && dtype != DType::int32 && dtype != DType::u8;
}

double Roundoff(DType dtype) { return dtype == DType::fp16 ? 0x1p-11 : UnitRoundoff(dtype); }

/// Half a step of the smallest numbers, below which relative bounds say nothing.
double SmallestLoss(DType dtype) {
  return dtype == DType::fp16 ? 0x1p-25 : dtype == DType::bf16 ? 0x1p-134 : dtype == DType::fp32 ? 0x1p-150 : 0;
}

double ArithmeticRoundoff(const std::vector<Operand>& operands) {
  const bool wide = std::any_of(operands.begin(), operands.end(),
                                [](const Operand& o) { return o.numbers.type().dtype == DType::fp64; });
  return wide ? 0x1p-53 : 0x1p-24;
}

std::vector<Numbers> TruthOf(const std::vector<Operand>& operands, const std::function<void(const Tensors&)>& call) {
  std::vector<Numbers> wide;
  for (const Operand& operand : operands) {
    wide.push_back(IsFloating(operand.numbers) ? operand.numbers.As(DType::fp64) : operand.numbers);
  }
  call(Tensors(wide.begin(), wide.end()));
  return wide;
}

std::vector<Numbers> ResultOf(const Place& place, const std::vector<Operand>& operands,
                              const std::function<void(const Tensors&)>& call) {
  std::vector<std::unique_ptr<Placed>> placed;
  Tensors tensors;
  for (const Operand& operand : operands) {
    placed.push_back(std::make_unique<Placed>(place, operand.numbers));
    tensors.push_back(placed.back()->tensor());
  }
  call(tensors);
  std::vector<Numbers> results;
  for (const std::unique_ptr<Placed>& operand : placed) {
    results.push_back(operand->Back());
  }
  return results;
}

/// `added`: to what has been rounded as the result is, if anything.
void ExpectWithin(const Numbers& result, const Numbers& truth, double lost, std::optional<double> added) {
  const std::vector<double> values = result.values(), expected = truth.values();
  const double stored = Roundoff(result.type().dtype), smallest = SmallestLoss(result.type().dtype);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << "element " << i << ": " << values[i] << " for NaN";
    } else if (std::isinf(expected[i])) {
      ASSERT_EQ(values[i], expected[i]) << "element " << i;
    } else {
      const double rounded = std::abs(expected[i]) + (added ? std::abs(expected[i]) + *added : 0);
      ASSERT_LE(std::abs(values[i] - expected[i]), 1.01 * stored * rounded + lost + smallest)
          << "element " << i << ": " << values[i] << " for " << expected[i];
    }
  }
}

void CompareOnce(const Place& place, const std::vector<Operand>& operands,
                 const std::function<void(const Tensors&)>& truth, const std::function<void(const Tensors&)>& tested,
                 bool twice) {
  const std::vector<Numbers> expected = TruthOf(operands, truth);
  const std::vector<Numbers> results = ResultOf(place, operands, tested);
  const std::vector<Numbers> again = twice ? ResultOf(place, operands, tested) : results;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    SCOPED_TRACE("operand " + std::to_string(i));
    EXPECT_EQ(results[i].bytes(), again[i].bytes()) << "other bits the second time";
    if (!operands[i].is_written) {
      EXPECT_EQ(results[i].bytes(), operands[i].numbers.bytes()) << "is only read";
    } else if (!IsFloating(operands[i].numbers)) {
      EXPECT_EQ(results[i].bytes(), expected[i].bytes());
    } else {
      ExpectWithin(results[i], expected[i], 2 * ArithmeticRoundoff(operands) * operands[i].lost,
                   place.rounds_before_adding() && SizeOf(operands[i].numbers.type().dtype) == Bytes(2)
                       ? operands[i].added
                       : std::nullopt);
    }
  }
}

}  // namespace

void CompareCalls(const Place& place, const std::vector<Operand>& operands,
                  const std::function<void(const Tensors&)>& truth, const std::function<void(const Tensors&)>& tested) {
  CompareOnce(place, operands, truth, tested, true);
  const bool twice = place.runs_threads();
  if (!place.tries_special_numbers()) {
    return;
  }
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<Operand> changed = operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const std::int64_t elements = operands[i].numbers.type().elements;
      if (!IsFloating(operands[i].numbers) || elements == 0) {
        continue;
      }
      SCOPED_TRACE("with " + std::to_string(value) + " in operand " + std::to_string(i));
      changed[i].numbers.Set(elements / 2, value);
      if (!kAtOnce) {
        CompareOnce(place, changed, truth, tested, twice);
        changed[i] = operands[i];
      }
    }
    if (kAtOnce) {
      SCOPED_TRACE("with " + std::to_string(value) + " in every operand");
      CompareOnce(place, changed, truth, tested, twice);
    }
  }
}

}  // namespace tidemark::kernels::cuda
