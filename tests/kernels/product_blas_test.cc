// SPDX-License-Identifier: Apache-2.0
#include "kernels/product_blas.h"

#include <gtest/gtest.h>

#include "kernels/gemm.h"
#include "tests/kernels/cuda_cases/column_major.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::cuda::product_blas_test {
namespace {

/// A product of two dense batches as gemm.cu asks for it, in one place to be read.
struct Asked {
  BatchTerm term;
  BatchResult result;
};

MatrixView First(const ConstTensor& tensor, std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? MatrixView{tensor, 0, columns, rows, rows, true} : MatrixView{tensor, 0, rows, columns, columns};
}

Asked Ask(const Gemm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& c) {
  return {{First(a, op.m, op.k, op.transpose_a),
           First(b, op.k, op.n, op.transpose_b),
           {.inner = op.m * op.k},
           {.inner = op.k * op.n}},
          {{c, 0, op.m, op.n, op.n, op.accumulate}, {.inner = op.m * op.n}, 1, op.batch}};
}

std::optional<BlasProduct> OfDTypes(DType a, DType b, DType c) {
  const Gemm op{.m = 2, .n = 3, .k = 4};
  const Asked asked = Ask(op, {{a, 8}}, {{b, 12}}, {{c, 6}});
  return BlasProductOf(asked.term, asked.result);
}

TEST(ProductBlas, SwapsTheOperandsAndReadsRowsAsColumns) {
  const Gemm op{.m = 2, .n = 3, .k = 4, .batch = 5, .transpose_b = true, .accumulate = true};
  const char memory[3] = {};
  char result = 0;
  const Asked asked =
      Ask(op, {{DType::bf16, 40}, &memory[0]}, {{DType::bf16, 60}, &memory[1]}, {{DType::fp32, 30}, &result});
  const BlasProduct expected{.a = {DType::bf16, 4, 3, 4, 12},
                             .b = {DType::bf16, 4, 2, 4, 8},
                             .d = {DType::fp32, 3, 2, 3, 6},
                             .transpose_a = true,
                             .accumulate = true,
                             .batch = 5};
  EXPECT_EQ(BlasProductOf(asked.term, asked.result), expected);
  const BlasOperands operands = BlasOperandsOf(asked.term, asked.result);
  EXPECT_EQ(operands.a, &memory[1]);
  EXPECT_EQ(operands.b, &memory[0]);
  EXPECT_EQ(operands.d, &result);
  EXPECT_EQ(operands.bias, nullptr);
}

TEST(ProductBlas, BeginsWhereTheViewsDo) {
  std::vector<float> a(100), b(100), c(100);
  const BatchTerm term{{{{DType::fp32, 100}, a.data()}, 7, 2, 3, 10}, {{{DType::fp32, 100}, b.data()}, 11, 3, 4, 20}};
  const BatchResult result{{{{DType::fp32, 100}, c.data()}, 13, 2, 4, 30}};
  const BlasOperands operands = BlasOperandsOf(term, result);
  EXPECT_EQ(operands.a, &b[11]);
  EXPECT_EQ(operands.b, &a[7]);
  EXPECT_EQ(operands.d, &c[13]);
  const BlasProduct product = BlasProductOf(term, result).value();
  EXPECT_EQ(product.a.leading, 20);
  EXPECT_EQ(product.b.leading, 10);
  EXPECT_EQ(product.d.leading, 30);
}

TEST(ProductBlas, OneMatrixHasNoStepsSoThatItsShapeIsKnownAgain) {
  const Gemm op{.m = 2, .n = 3, .k = 4};
  const Asked asked = Ask(op, {{DType::fp32, 8}}, {{DType::fp32, 12}}, {{DType::fp32, 6}});
  const BlasProduct product = BlasProductOf(asked.term, asked.result).value();
  EXPECT_EQ(product.a.step + product.b.step + product.d.step, 0);
}

TEST(ProductBlas, IsAskedOnlyWhatCublasLtHas) {
  constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16};
  for (const DType a : kFloating) {
    for (const DType b : kFloating) {
      for (const DType c : kFloating) {
        const bool is_two_bytes = a == DType::bf16 || a == DType::fp16;
        EXPECT_EQ(OfDTypes(a, b, c).has_value(), a == b && (c == a || (is_two_bytes && c == DType::fp32)))
            << Name(a) << " " << Name(b) << " " << Name(c);
      }
    }
  }
}

TEST(ProductBlas, ARowIsABiasOfTheResultsDTypeAndOfOneMatrix) {
  const Gemm op{.m = 2, .n = 3, .k = 4};
  Asked asked = Ask(op, {{DType::bf16, 8}}, {{DType::bf16, 12}}, {{DType::bf16, 6}});
  asked.result.first.row = ConstTensor{{DType::bf16, 3}, nullptr};
  EXPECT_TRUE(BlasProductOf(asked.term, asked.result).value().bias);
  asked.result.first.row = ConstTensor{{DType::fp32, 3}, nullptr};
  EXPECT_FALSE(BlasProductOf(asked.term, asked.result).has_value());
  asked.result.first.row = ConstTensor{{DType::bf16, 3}, nullptr};
  asked.result.inner = 2;
  EXPECT_FALSE(BlasProductOf(asked.term, asked.result).has_value());
}

TEST(ProductBlas, ASumOfNoProductsIsNotAsked) {
  const Asked asked = Ask({.m = 2, .n = 3}, {{DType::fp32, 0}}, {{DType::fp32, 0}}, {{DType::fp32, 6}});
  EXPECT_FALSE(BlasProductOf(asked.term, asked.result).has_value());
}

TEST(ProductBlas, DoneByColumnsIsTheProductByRows) {
  for (const Gemm& shape : {Gemm{1, 1, 1}, Gemm{3, 5, 7, 2}, Gemm{1, 4, 2, 3}, Gemm{17, 2, 9}}) {
    for (int way = 0; way < 8; ++way) {
      Gemm op = shape;
      op.transpose_a = (way & 1) != 0;
      op.transpose_b = (way & 2) != 0;
      op.accumulate = (way & 4) != 0;
      for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
        const Numbers a = Numbers::Random({dtype, op.batch * op.m * op.k}, 1);
        const Numbers b = Numbers::Random({dtype, op.batch * op.k * op.n}, 2);
        Numbers c = op.accumulate ? Numbers::Random(GemmOutput(op, dtype), 3) : Numbers(GemmOutput(op, dtype));
        Numbers by_columns = c;
        kernels::Multiply(op, a, b, c);
        const Asked asked = Ask(op, a, b, by_columns);
        const std::optional<BlasProduct> product = BlasProductOf(asked.term, asked.result);
        ASSERT_TRUE(product.has_value());
        ColumnMajor().Multiply(*product, BlasOperandsOf(asked.term, asked.result), {});
        // Sums of at most 9 products of size 1 and of what was there; one storing rounds up, the other down.
        ExpectNear(by_columns, c.values(),
                   10 * 11 * UnitRoundoff(dtype == DType::bf16 ? DType::fp32 : dtype) + 10 * 2 * UnitRoundoff(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace tidemark::kernels::cuda::product_blas_test
