// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/kernels/cuda_cases/compare.h"

namespace tidemark::kernels::cuda {
namespace {

void Expect(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

/// Memory of the GPU and a stream of its own.
class Gpu final : public Place {
 public:
  Gpu() {
    Expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Expect(cudaMalloc(&scratch_, Queue::kScratchBytes));
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() override {
    cudaFree(scratch_);
    cudaStreamDestroy(stream_);
  }

  Queue queue() const override { return {.stream = stream_, .scratch = scratch_}; }
  void* Take(std::size_t bytes) const override {
    void* data = nullptr;
    if (bytes > 0) {
      Expect(cudaMalloc(&data, bytes));
    }
    return data;
  }
  void GiveBack(void* data) const override { Expect(cudaFree(data)); }
  void Put(const void* from, void* to, std::size_t bytes) const override {
    Expect(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  }
  void Fetch(const void* from, void* to, std::size_t bytes) const override {
    Expect(cudaStreamSynchronize(stream_));
    Expect(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
  }

 private:
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

class CudaOnGpu : public testing::TestWithParam<Case> {};

TEST_P(CudaOnGpu, IsTheTruthWithinItsRoundings) { GetParam().check(Gpu()); }

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnGpu, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tidemark::kernels::cuda
