// SPDX-License-Identifier: Apache-2.0
#include "kernels/blas.h"

namespace tidemark::kernels::cuda {
namespace {

Error NoCuda() {
  return {ErrorCode::machine_cannot, "", "this program was built without CUDA, so it has no cuBLASLt",
          "build it where there is a CUDA 13 toolkit"};
}

}  // namespace

Result<std::unique_ptr<Blas>> OpenCublasLt() { return NoCuda(); }

Result<std::string> CublasLtVersion() { return NoCuda(); }

}  // namespace tidemark::kernels::cuda
