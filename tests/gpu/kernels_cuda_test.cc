// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/attention_cuda.h"
#include "kernels/blas.h"
#include "kernels/cross_entropy_cuda.h"
#include "kernels/linear_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "tests/kernels/cuda_cases/compare.h"

namespace tidemark::kernels::cuda::kernels_cuda_test {
namespace {

void Expect(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

/// Memory of the GPU and a stream of its own.
class Gpu final : public Place {
 public:
  /// A BLAS, if any, gets a workspace of so many bytes.
  explicit Gpu(Blas* blas = nullptr, std::int64_t workspace_bytes = 0, std::int64_t elements_before = 0)
      : blas_(blas), workspace_bytes_(workspace_bytes), elements_before_(elements_before) {
    Expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Expect(cudaMalloc(&scratch_, Queue::kScratchBytes));
    workspace_ = Take(static_cast<std::size_t>(workspace_bytes));
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() override {
    cudaFree(workspace_);
    cudaFree(scratch_);
    cudaStreamDestroy(stream_);
  }

  Queue queue() const override {
    return {.stream = stream_,
            .scratch = scratch_,
            .blas = blas_,
            .workspace = workspace_,
            .workspace_bytes = workspace_bytes_};
  }
  std::int64_t elements_before() const override { return elements_before_; }
  bool rounds_before_adding() const override { return blas_ != nullptr; }
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
  Blas* blas_;
  std::int64_t workspace_bytes_, elements_before_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  void* workspace_ = nullptr;
};

class CudaOnGpu : public testing::TestWithParam<Case> {};

/// Without a workspace, operands are aligned to their dtypes alone.
TEST_P(CudaOnGpu, IsTheTruthWithinItsRoundings) {
  for (const bool has_workspace : {true, false}) {
    const Gpu gpu(nullptr, has_workspace ? Queue::kWorkspaceBytes : 0, has_workspace ? 0 : 1);
    ASSERT_FALSE(HasFatalFailure()) << "no GPU";
    GetParam().check(gpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnGpu, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

/// cuBLASLt, with the workspace that a step gives it, with one in which few sums have room, and with none.
class CudaOnGpuWithCublasLt : public testing::TestWithParam<Case> {};

TEST_P(CudaOnGpuWithCublasLt, IsTheTruthWithinItsRoundings) {
  for (const std::int64_t workspace_bytes : {Queue::kWorkspaceBytes, std::int64_t{1024}, std::int64_t{0}}) {
    const Result<std::unique_ptr<Blas>> blas = OpenCublasLt();
    ASSERT_TRUE(blas.ok()) << blas.error().Text();
    const Gpu gpu(blas->get(), workspace_bytes);
    ASSERT_FALSE(HasFatalFailure()) << "no GPU";
    GetParam().check(gpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnGpuWithCublasLt, testing::ValuesIn(CasesThatMultiply()),
                         [](const auto& one) { return one.param.name; });

/// Answers what another BLAS can do.
class Counted final : public Blas {
 public:
  explicit Counted(Blas& blas) : blas_(blas) {}
  bool Multiply(const BlasProduct& product, const BlasOperands& operands, const Queue& queue) override {
    const bool is_done = blas_.Multiply(product, operands, queue);
    done_ += is_done ? 1 : 0;
    return is_done;
  }
  int done() const { return done_; }

 private:
  Blas& blas_;
  int done_ = 0;
};

TEST(CublasLt, HasEveryProductOfAStep) {
  const Result<std::unique_ptr<Blas>> blas = OpenCublasLt();
  ASSERT_TRUE(blas.ok()) << blas.error().Text();
  Counted counted(**blas);
  const Gpu gpu(&counted, Queue::kWorkspaceBytes);
  ASSERT_FALSE(HasFatalFailure()) << "no GPU";
  for (const auto& [factors, result] : {std::pair{DType::fp64, DType::fp64}, std::pair{DType::fp32, DType::fp32},
                                        std::pair{DType::bf16, DType::bf16}, std::pair{DType::fp16, DType::fp16},
                                        std::pair{DType::bf16, DType::fp32}, std::pair{DType::fp16, DType::fp32}}) {
    const Linear op{.rows = 64, .in = 128, .out = 256};
    const Placed x(gpu, Some(factors, op.rows * op.in, 1)), w(gpu, Some(factors, op.out * op.in, 2));
    const Placed b(gpu, Some(result, op.out, 3)), y(gpu, Numbers(LinearOutput(op, result, op.out)));
    const Tensor outputs[] = {y.tensor()};
    for (const bool with_bias : {false, true}) {
      const int before = counted.done();
      SCOPED_TRACE(std::string(Name(factors)) + " to " + std::string(Name(result)) + (with_bias ? " with bias" : ""));
      LinearForward(op, x.tensor(), w.tensor(), with_bias ? std::optional<ConstTensor>(b.tensor()) : std::nullopt,
                    outputs, gpu.queue());
      EXPECT_EQ(counted.done(), before + 1);
    }
  }
}

TEST(CudaGrids, TakeMoreRowsThanThereAreBlocks) {
  const Gpu gpu;
  ASSERT_FALSE(HasFatalFailure()) << "no GPU";
  const CrossEntropy op{.rows = 70001, .columns = 2};
  Compare(gpu, {Read(Some(DType::fp32, 2 * op.rows, 1)), Written({DType::fp32, op.rows}, 0)}, &kernels::RowMax,
          &cuda::RowMax, [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
}

TEST(CudaGrids, TakeMoreTilesThanThereAreBlocks) {
  const Gpu gpu;
  ASSERT_FALSE(HasFatalFailure()) << "no GPU";
  const Attention op{.shape = {70001, 1, 1, 1, 2}};
  const AttentionTypes types = AttentionOutputs(op, DType::bf16);
  const std::int64_t elements = op.shape.query_elements();
  // One key's weight is 1, the output its value; lse is the score, of size 1.5 with four roundings.
  Compare(gpu,
          {Read(Some(DType::bf16, elements, 1)), Read(Some(DType::bf16, elements, 2)),
           Read(Some(DType::bf16, elements, 3)), Written(types.output, 0), Written(types.lse, 6)},
          &kernels::AttentionForward, &cuda::AttentionForward,
          [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4]); });
}

TEST(CudaGrids, ReachElementsBeyond32Bits) {
  const Gpu gpu;
  ASSERT_FALSE(HasFatalFailure()) << "no GPU";
  constexpr std::int64_t kPacked = std::int64_t{1} << 32, kElements = kPacked + 8 + 3;
  void* data = gpu.Take(2 * kElements);
  ASSERT_NE(data, nullptr);
  const Tensor all{{DType::bf16, kElements}, data};
  Zero(all, gpu.queue());
  // The last pack of eight, and the elements behind it.
  const Tensor last = Slice(all, kPacked, kElements - kPacked);
  const Placed some(gpu, Numbers(DType::bf16, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  Copy(some.tensor(), last, 1, gpu.queue());
  Scale(0.5, all, gpu.queue());
  Copy(last, some.tensor(), 1, gpu.queue());
  EXPECT_EQ(some.Back().values(), (std::vector<double>{0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5}));
  gpu.GiveBack(data);
}

}  // namespace
}  // namespace tidemark::kernels::cuda::kernels_cuda_test
