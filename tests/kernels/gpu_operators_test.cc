// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "kernels/linear_cuda.h"
#include "tests/kernels/cuda_cases/column_major.h"
#include "tests/kernels/cuda_cases/compare.h"
#include "tests/kernels/cuda_cases/host_memory.h"

namespace tidemark::kernels::cuda::gpu_operators_test {
namespace {

class Host final : public HostMemory {
 public:
  /// A BLAS, if any, gets a workspace of so many bytes.
  explicit Host(Blas* blas = nullptr, std::size_t workspace_bytes = 0, std::int64_t elements_before = 0)
      : HostMemory(workspace_bytes), blas_(blas), elements_before_(elements_before) {}

  Queue queue() const override {
    Queue queue = QueueBeside();
    queue.kind = Queue::Kind::host;
    queue.blas = blas_;
    return queue;
  }
  std::int64_t elements_before() const override { return elements_before_; }

 private:
  Blas* blas_;
  std::int64_t elements_before_;
};

/// What the GPU computes, on the host: tests/gpu has the same cases on a GPU.
class CudaOnHost : public testing::TestWithParam<Case> {};

/// Long columns are summed by shares in the workspace, where there is one. Without it, operands are aligned to their
/// dtypes alone.
TEST_P(CudaOnHost, IsTheTruthWithinItsRoundings) {
  GetParam().check(Host(nullptr, std::size_t{1} << 20));
  GetParam().check(Host(nullptr, 0, 1));
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnHost, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

/// The same with a BLAS that does to the letter what it is asked for. In the workspace there is room for all rows of a
/// sum, for some, for none.
class CudaOnHostWithBlas : public testing::TestWithParam<Case> {};

TEST_P(CudaOnHostWithBlas, IsTheTruthWithinItsRoundings) {
  for (const std::size_t workspace_bytes : {std::size_t{1} << 20, std::size_t{1024}, std::size_t{0}}) {
    ColumnMajor blas;
    GetParam().check(Host(&blas, workspace_bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaOnHostWithBlas, testing::ValuesIn(CasesThatMultiply()),
                         [](const auto& one) { return one.param.name; });

/// Products that a linear layer's input gradient, of two outputs, asks a BLAS for.
int ProductsAsked(DType dtype, DType weight, std::size_t workspace_bytes) {
  const Linear op{.rows = 3, .in = 4, .out = 5};
  Numbers dx(LinearInputGradientOutput(op, dtype));
  const Numbers dy1 = Some(dtype, 6, 1), dy2 = Some(dtype, 9, 2), w = Some(weight, 20, 3);
  const ConstTensor gradients[] = {dy1, dy2};
  ColumnMajor blas;
  LinearInputGradient(op, gradients, w, dx, Host(&blas, workspace_bytes).queue());
  return blas.products();
}

TEST(SumOfProducts, AsksTheBlasWhereItHasTheDTypesAndRoundsOnce) {
  EXPECT_EQ(ProductsAsked(DType::fp64, DType::fp64, 0), 2);
  EXPECT_EQ(ProductsAsked(DType::fp32, DType::fp32, 0), 2);
  EXPECT_EQ(ProductsAsked(DType::bf16, DType::bf16, 0), 0) << "it would round each product";
  EXPECT_EQ(ProductsAsked(DType::bf16, DType::bf16, 1 << 20), 2);
  EXPECT_EQ(ProductsAsked(DType::bf16, DType::bf16, 1024), 2) << "three rows of 16 B, in 512 B";
  EXPECT_EQ(ProductsAsked(DType::bf16, DType::fp32, 1 << 20), 0);
}

/// The same of so many rows, of two bf16 outputs of whole words, in a workspace of which half has room for 64 rows.
int JoinedProducts(std::int64_t rows) {
  const Linear op{.rows = rows, .in = 4, .out = 16};
  Numbers dx(LinearInputGradientOutput(op, DType::bf16));
  const Numbers dy1 = Some(DType::bf16, rows * 8, 1), dy2 = Some(DType::bf16, rows * 8, 2),
                w = Some(DType::bf16, 64, 3);
  const ConstTensor gradients[] = {dy1, dy2};
  ColumnMajor blas;
  const Host host(&blas, std::size_t{2} * 64 * 16 * 2);
  LinearInputGradient(op, gradients, w, dx, host.queue());
  Numbers expected(LinearInputGradientOutput(op, DType::fp64));
  const Numbers wide1 = dy1.As(DType::fp64), wide2 = dy2.As(DType::fp64);
  const ConstTensor wide[] = {wide1, wide2};
  kernels::LinearInputGradient(op, wide, w.As(DType::fp64), expected);
  ExpectNear(dx, expected.values(), 16 * UnitRoundoff(DType::bf16));
  return blas.products();
}

TEST(SumOfProducts, OfOutputsInWholeWordsIsOneProductOfAsManyRowsAsHaveRoom) {
  EXPECT_EQ(JoinedProducts(3), 1);
  EXPECT_EQ(JoinedProducts(64), 1);
  EXPECT_EQ(JoinedProducts(130), 3) << "64, 64 and 2 rows";
}

/// Refuses everything, as a library does that has no way to do a product.
class Unable final : public Blas {
 public:
  bool Multiply(const BlasProduct&, const BlasOperands&, const Queue&) override { return false; }
};

TEST(SumOfProducts, IsOursWhereTheBlasCannot) {
  Unable unable;
  for (const Case& one : CasesThatMultiply()) {
    if (one.name == "LinearInputGradient" || one.name == "AttentionScores") {
      one.check(Host(&unable, 1 << 20));
    }
  }
}

/// Has no way to add a row.
class WithoutRows final : public Blas {
 public:
  bool Multiply(const BlasProduct& product, const BlasOperands& operands, const Queue& queue) override {
    return !product.bias && blas_.Multiply(product, operands, queue);
  }
  int products() const { return blas_.products(); }

 private:
  ColumnMajor blas_;
};

TEST(SumOfProducts, AddsTheRowWhereTheBlasCannot) {
  for (const std::size_t workspace_bytes : {std::size_t{1} << 20, std::size_t{0}}) {
    WithoutRows blas;
    for (const Case& one : CasesThatMultiply()) {
      if (one.name == "LinearForward") {
        one.check(Host(&blas, workspace_bytes));
      }
    }
    EXPECT_GT(blas.products(), 0);
  }
  const Linear op{.rows = 3, .in = 4, .out = 5};
  const Numbers x = Some(DType::bf16, 12, 1), w = Some(DType::bf16, 20, 2), row = Some(DType::bf16, 5, 3);
  Numbers y(LinearOutput(op, DType::bf16, op.out));
  const Tensor outputs[] = {y};
  WithoutRows blas;
  LinearForward(op, x, w, ConstTensor(row), outputs, Host(&blas, 1 << 20).queue());
  EXPECT_EQ(blas.products(), 1) << "the product is the library's all the same";
}

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
}  // namespace tidemark::kernels::cuda::gpu_operators_test
