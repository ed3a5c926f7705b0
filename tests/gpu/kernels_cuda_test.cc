// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/cross_entropy_cuda.h"
#include "kernels/pointwise_cuda.h"
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
  // In the stream: it does not wait for copies of the default stream, which may end after their call.
  void Put(const void* from, void* to, std::size_t bytes) const override {
    Expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    Expect(cudaStreamSynchronize(stream_));
  }
  void Fetch(const void* from, void* to, std::size_t bytes) const override {
    Expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    Expect(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

class CudaOnGpu : public testing::TestWithParam<Case> {};

TEST_P(CudaOnGpu, IsTheTruthWithinItsRoundings) {
  const Gpu gpu;
  if (!HasFatalFailure()) {  // there is one
    GetParam().check(gpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnGpu, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

TEST(CudaGrids, TakeMoreRowsThanThereAreBlocks) {
  const Gpu gpu;
  ASSERT_FALSE(HasFatalFailure()) << "no GPU";
  const CrossEntropy op{.rows = 70001, .columns = 2};
  Compare(gpu, {Read(Some(DType::fp32, 2 * op.rows, 1)), Written({DType::fp32, op.rows}, 0)}, &kernels::RowMax,
          &cuda::RowMax, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
}

TEST(CudaGrids, ReachElementsBeyond32Bits) {
  const Gpu gpu;
  ASSERT_FALSE(HasFatalFailure()) << "no GPU";
  constexpr std::int64_t kElements = (std::int64_t{1} << 32) + 3;
  void* data = gpu.Take(2 * kElements);
  ASSERT_NE(data, nullptr);
  const Tensor all{{DType::bf16, kElements}, data};
  Zero(all, gpu.queue());
  const Placed one(gpu, Numbers(DType::bf16, {1, 2, 3}));
  Copy(one.tensor(), Slice(all, kElements - 3, 3), 1, gpu.queue());
  Scale(0.5, all, gpu.queue());
  Copy(Slice(all, kElements - 3, 3), one.tensor(), 1, gpu.queue());
  EXPECT_EQ(one.Back().values(), (std::vector<double>{0.5, 1, 1.5}));
  gpu.GiveBack(data);
}

}  // namespace
}  // namespace tidemark::kernels::cuda
