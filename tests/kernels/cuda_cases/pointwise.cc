// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/pointwise_cuda.h"
#include "kernels/together.h"
#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

void CheckCopy(const Place& place) {
  EachDType([&](DType from) {
    EachDType([&](DType to) {
      for (const std::int64_t n : kSizes) {
        for (const double factor : {1.0, 1.0 / 3}) {  // the factor is rounded, then the product
          Compare(place, {Read(Some(from, n, 1)), Written({to, n}, 2)}, &kernels::Copy, &cuda::Copy,
                  [&](auto run, const Tensors& t) { run(t[0], t[1], factor); });
        }
      }
    });
  });
  Compare(place, {Read(Numbers::Integers({5, -100, 1LL << 40})), Written({DType::int64, 3}, 0)}, &kernels::Copy,
          &cuda::Copy, [](auto run, const Tensors& t) { run(t[0], t[1], 1.0); });
}

void CheckAdd(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {
      const std::vector<Operand> operands = {Read(Some(dtype, n, 1)), Read(Some(DType::bf16, n, 2)),
                                             Updated(Some(dtype, n, 3), 2 * 3)};  // two sums, of size 3
      Compare(place, operands, &kernels::Add, &cuda::Add, [](auto run, const Tensors& t) {
        const ConstTensor addends[] = {t[0], t[1], t[2]};
        run(std::span<const ConstTensor>(addends), t[2]);
      });
    }
  });
}

void CheckAccumulate(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {  // a factor, a product and a sum, of size 2
      Compare(place, {Read(Some(DType::bf16, n, 1)), Updated(Some(dtype, n, 2), 3 * 2)}, &kernels::Accumulate,
              &cuda::Accumulate, [](auto run, const Tensors& t) { run(t[0], t[1], 0.7); });
    }
  });
}

/// All but the first element, which does not lie where a block of memory begins.
Tensor Rest(const Tensor& tensor) {
  return {{tensor.type.dtype, tensor.type.elements - 1},
          static_cast<char*>(tensor.data) + SizeOf(tensor.type.dtype).count()};
}

void CheckUnaligned(const Place& place) {
  EachDType([&](DType from) {
    EachDType([&](DType to) {
      for (const std::int64_t n : kSizes) {
        Compare(place, {Read(Some(from, n + 1, 1)), Updated(Some(to, n + 1, 2), 3 * 2)}, &kernels::Accumulate,
                &cuda::Accumulate, [](auto run, const Tensors& t) { run(Rest(t[0]), Rest(t[1]), 0.7); });
      }
    });
  });
}

void CheckScale(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {
      Compare(place, {Updated(Some(dtype, n, 1), 2)}, &kernels::Scale, &cuda::Scale,
              [](auto run, const Tensors& t) { run(0.3, t[0]); });
    }
  });
}

void CheckZero(const Place& place) {
  for (const DType dtype : {DType::fp64, DType::bf16, DType::int64, DType::u8}) {
    for (const std::int64_t n : kSizes) {
      Compare(place, {Written({dtype, n}, 0)}, &kernels::Zero, &cuda::Zero,
              [](auto run, const Tensors& t) { run(t[0]); });
    }
  }
}

void CheckFill(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {
      Compare(place, {Written({dtype, n}, 2)}, &kernels::Fill, &cuda::Fill,
              [](auto run, const Tensors& t) { run(1.0 / 3, t[0]); });
    }
  });
}

void CheckTimes(const Place& place) {
  EachDType([&](DType dtype) {
    for (const std::int64_t n : kSizes) {  // a factor, a product and a sum, of size 2
      const Numbers factor = Some(DType::fp32, 1, 3);
      Compare(place, {Read(Some(DType::bf16, n, 1)), Read(factor), Written({dtype, n}, 2)}, &kernels::CopyTimes,
              &cuda::CopyTimes, [](auto run, const Tensors& t) { run(t[0], t[1], t[2]); });
      Compare(place, {Read(Some(DType::bf16, n, 1)), Read(factor), Updated(Some(dtype, n, 2), 3 * 2)},
              &kernels::AccumulateTimes, &cuda::AccumulateTimes,
              [](auto run, const Tensors& t) { run(t[0], t[1], t[2]); });
    }
  });
}

// What waits together: copies that keep bytes, casts, sums, and in between one that is no kernel over elements.

using Parts = std::span<const std::pair<ConstTensor, Tensor>>;

/// The second copy writes over the first, by a kernel of the same kind.
void CopyAndAddParts(Parts parts, const Tensor& cleared) {
  for (const double factor : {-2.0, 0.3}) {
    for (const auto& [from, to] : parts) {
      kernels::Copy(from, to, factor);
    }
  }
  kernels::Zero(cleared);
  for (const auto& [from, to] : parts) {
    kernels::Accumulate(from, to, 0.7);
  }
}
void CopyAndAddPartsTogether(Parts parts, const Tensor& cleared, const Queue& queue) {
  using Part = std::pair<ConstTensor, Tensor>;
  for (const double factor : {-2.0, 0.3}) {
    EachTogether(queue, parts, [factor](const Queue& on_queue, const Part& part) {
      cuda::Copy(part.first, part.second, factor, on_queue);
    });
  }
  Together together(queue);
  cuda::Zero(cleared, together.queue());
  for (const auto& [from, to] : parts) {
    cuda::Accumulate(from, to, 0.7, together.queue());
  }
}

void MoveParts(Parts parts, const Tensor&) {
  for (const auto& [from, to] : parts) {
    kernels::Copy(from, to, 1);
  }
}
void MovePartsTogether(Parts parts, const Tensor&, const Queue& queue) {
  EachTogether(queue, parts, [](const Queue& on_queue, const std::pair<ConstTensor, Tensor>& part) {
    cuda::Copy(part.first, part.second, 1, on_queue);
  });
}

constexpr std::int64_t kLargest = 16, kTimes = 10, kOfSeveralBlocks = 5003;
constexpr std::int64_t kAllParts = kTimes * kLargest * (kLargest + 1) / 2 + kOfSeveralBlocks;

/// More than one launch takes: none, and of every number of elements up to twice a pack, several times, from places
/// that are not aligned on; and then one for several blocks.
std::vector<std::pair<ConstTensor, Tensor>> PartsOf(const Tensor& from, const Tensor& to) {
  std::vector<std::pair<ConstTensor, Tensor>> parts;
  std::int64_t at = 0;
  const auto add = [&](std::int64_t count) {
    parts.emplace_back(Slice(ConstTensor(from), at, count), Slice(to, at, count));
    at += count;
  };
  for (std::int64_t i = 0; i < kTimes; ++i) {
    for (std::int64_t count = 0; count <= kLargest; ++count) {
      add(count);
    }
  }
  add(kOfSeveralBlocks);
  return parts;
}

void CheckTogether(const Place& place) {
  EachDType([&](DType from) {
    EachDType([&](DType to) {
      // A factor, a product and a sum, of size 2, behind a copy of up to 0.6, which was rounded as it is stored.
      const double arithmetic = from == DType::fp64 || to == DType::fp64 ? 0x1p-53 : 0x1p-24;
      const double stored = (to == DType::fp16 ? 0x1p-11 : UnitRoundoff(to)) / arithmetic;
      const std::vector<Operand> operands = {
          Read(Some(from, kAllParts, 1)), Written({to, kAllParts}, 3 * 2 + 0.6 * stored), Updated(Some(to, 5, 3), 0)};
      Compare(place, operands, &CopyAndAddParts, &CopyAndAddPartsTogether, [](auto run, const Tensors& t) {
        const auto parts = PartsOf(t[0], t[1]);
        run(Parts(parts), t[2]);
      });
    });
    const std::vector<Operand> operands = {Read(Some(from, kAllParts, 1)), Written({from, kAllParts}, 0),
                                           Updated(Some(from, 5, 3), 0)};
    Compare(place, operands, &MoveParts, &MovePartsTogether, [](auto run, const Tensors& t) {
      const auto parts = PartsOf(t[0], t[1]);
      run(Parts(parts), t[2]);
    });
  });
}

}  // namespace

std::vector<Case> PointwiseCases() {
  return {
      {"Copy", CheckCopy},        {"Add", CheckAdd},   {"Accumulate", CheckAccumulate}, {"Scale", CheckScale},
      {"Zero", CheckZero},        {"Fill", CheckFill}, {"Times", CheckTimes},           {"Unaligned", CheckUnaligned},
      {"Together", CheckTogether}};
}

}  // namespace tidemark::kernels::cuda
