// SPDX-License-Identifier: Apache-2.0
#include "kernels/blas.h"

#include <gtest/gtest.h>

namespace tidemark::kernels::cuda::blas_test {
namespace {

/// Here, that is, where no GPU is asked for: tests/gpu/kernels_cuda_test.cc opens it there.
TEST(CublasLt, IsOpenedOrSaysWhatIsMissing) {
  const Result<std::unique_ptr<Blas>> blas = OpenCublasLt();
  if (!blas) {
    EXPECT_EQ(blas.error().code, ErrorCode::machine_cannot);
    EXPECT_NE(blas.error().message, "");
    EXPECT_NE(blas.error().hint, "");
  } else {
    EXPECT_NE(*blas, nullptr);
  }
}

}  // namespace
}  // namespace tidemark::kernels::cuda::blas_test
