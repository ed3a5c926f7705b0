// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/kernels/cuda_cases/compare.h"

namespace tidemark::kernels::cuda {
namespace {

class Host final : public Place {
 public:
  Queue queue() const override { return {.kind = Queue::Kind::host, .scratch = scratch_.data()}; }
  void* Take(std::size_t bytes) const override { return std::malloc(bytes); }
  void GiveBack(void* data) const override { std::free(data); }
  void Put(const void* from, void* to, std::size_t bytes) const override { Move(from, to, bytes); }
  void Fetch(const void* from, void* to, std::size_t bytes) const override { Move(from, to, bytes); }

 private:
  static void Move(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  }

  mutable std::vector<double> scratch_ = std::vector<double>(Queue::kPartialSums);
};

/// What the GPU computes, on the host: tests/gpu has the same cases on a GPU.
class CudaOnHost : public testing::TestWithParam<Case> {};

TEST_P(CudaOnHost, IsTheTruthWithinItsRoundings) { GetParam().check(Host()); }

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnHost, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

/// Two ones times 2 (1 + error) against two ones times 2: the bound is 2 u for what is stored and 4 u.
void CompareScales(double error) {
  CompareCalls(
      Host(), {Updated(Numbers(DType::fp32, {1, 1}), 2)}, [](const Tensors& t) { Scale(2, t[0]); },
      [error](const Tensors& t) { Scale(2 * (1 + error), t[0]); });
}

TEST(CompareCalls, FindsAnErrorBeyondTheBound) {
  CompareScales(2 * 0x1p-24);
  testing::TestPartResultArray found;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
    CompareScales(8 * 0x1p-24);
  }
  EXPECT_GT(found.size(), 0);
}

}  // namespace
}  // namespace tidemark::kernels::cuda
