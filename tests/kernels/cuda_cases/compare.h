// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/kernels/cuda_cases/place.h"

namespace tidemark::kernels::cuda {

/// An operand of a call. One that is written is compared with the truth: `lost` says how far from it the arithmetic may
/// be, in roundings of numbers of size 1. That is the roundings on the longest way from an operand to the result, a sum
/// of n counting n, times the largest size of what is rounded. `added`: the largest size of what is added to a product
/// when that is made, if anything is.
struct Operand {
  Numbers numbers;
  bool is_written = false;
  double lost = 0;
  std::optional<double> added{};
};

inline Operand Read(Numbers numbers) { return {std::move(numbers)}; }
inline Operand Written(TensorType type, double lost) { return {Numbers(type), true, lost}; }
inline Operand Updated(Numbers numbers, double lost) { return {std::move(numbers), true, lost}; }
/// A product, to which numbers up to 1 are added where `adds`.
inline Operand Product(Numbers numbers, double lost, bool adds) {
  return {std::move(numbers), true, lost, adds ? std::optional(1.0) : std::nullopt};
}

using Tensors = std::vector<Tensor>;

/// Expects of two calls that they give the same within the roundings of the second:
///   |second - first| <= v |first| + 2 u lost
/// with v the unit roundoff of what is stored, u that of the arithmetic; and v (|first| + added) more where a product
/// is rounded before something is added. The first has the operands in fp64, where it loses as much itself: hence 2.
/// What is NaN or infinite must be so in both. The second call is made twice, which must give the same bits, and must
/// leave alone what it only reads. All of that again with a NaN, then with an infinity in each operand, once where no
/// threads run beside each other.
void CompareCalls(const Place& place, const std::vector<Operand>& operands,
                  const std::function<void(const Tensors&)>& truth, const std::function<void(const Tensors&)>& tested);

/// The same of two functions, the second of which takes a queue besides. `call(function, tensors)` gives the arguments.
template <class Truth, class Tested, class Call>
void Compare(const Place& place, const std::vector<Operand>& operands, Truth truth, Tested tested, Call call) {
  CompareCalls(
      place, operands, [&](const Tensors& t) { call([&](const auto&... arguments) { truth(arguments...); }, t); },
      [&](const Tensors& t) { call([&](const auto&... arguments) { tested(arguments..., place.queue()); }, t); });
}

/// Roundings of a sum of n: a team's, or the n / 16 + 4 that the truth takes in fp64. A team's are n / 256 + 16, fewer
/// where few threads have something: 13 of up to 68, which are a pack and an element of a thread at most, of one warp;
/// 11 of up to 15, of which no more than eight threads have something beside a pack.
inline double SumLost(std::int64_t n) { return static_cast<double>(n) / 16 + 12; }

/// Of n products of numbers up to 1, added one after the other to two more: n + 4 of size n + 2.
inline double ProductLost(std::int64_t n) {
  const double products = static_cast<double>(n);
  return (products + 4) * (products + 2);
}

/// One rounding of what is stored in this dtype, for results that are stored and read again on the way: as many of the
/// arithmetic's, half of them because the truth has none.
inline double StoredLost(DType dtype) { return dtype == DType::bf16 ? 0x1p15 : dtype == DType::fp16 ? 0x1p12 : 1; }

/// Calls `body(dtype)` for every floating dtype.
template <class Body>
void EachDType(Body body) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    SCOPED_TRACE(Name(dtype));
    body(dtype);
  }
}

/// None, one, odd, around a block of elements and a block of packs, and more than that.
inline constexpr std::int64_t kSizes[] = {0, 1, 3, 33, 255, 256, 257, 2047, 2048, 5003};
/// The same for rows of `width`.
struct RowsOf {
  std::int64_t rows = 0, width = 0;
};
inline constexpr RowsOf kMatrices[] = {{0, 7}, {1, 1}, {1, 300}, {3, 33}, {67, 5}, {5, 256}, {2, 2077}};
/// So many rows that blocks share the sums of a column.
inline constexpr std::int64_t kSharedRows = 300;

/// Random numbers of this many elements.
inline Numbers Some(DType dtype, std::int64_t elements, unsigned seed) {
  return Numbers::Random({dtype, elements}, seed);
}

/// Positive ones: from 1/2 to 5/2.
inline Numbers SomePositive(DType dtype, std::int64_t elements, unsigned seed) {
  std::vector<double> values = Some(DType::fp64, elements, seed).values();
  for (double& value : values) {
    value += 1.5;
  }
  return {dtype, values};
}

/// Everything about one operator, under the name of its function.
struct Case {
  std::string name;
  std::function<void(const Place&)> check;
};
inline std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }
std::vector<Case> Cases();
/// Those that multiply, which do it in other ways in a queue with a BLAS.
std::vector<Case> CasesThatMultiply();

}  // namespace tidemark::kernels::cuda
