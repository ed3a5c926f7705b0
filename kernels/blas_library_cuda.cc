// SPDX-License-Identifier: Apache-2.0
#include "kernels/blas_library_cuda.h"

#include <string>

#include "base/shared_library.h"

namespace tidemark::kernels::cuda {
namespace {

/// The library of another major version has other structures.
std::string Major() { return std::to_string(CUBLAS_VER_MAJOR); }

}  // namespace

Result<BlasLibrary> LoadBlasLibrary() {
  const SharedLibrary library = SharedLibrary::OfCuda("libcublasLt.so." + Major(), CUBLAS_VER_MAJOR);
  if (!library.is_there()) {
    return Error{ErrorCode::machine_cannot, "", "cuBLASLt (libcublasLt.so." + Major() + ") is not installed",
                 "it is part of the CUDA " + Major() + " toolkit; set LD_LIBRARY_PATH to its folder"};
  }
  BlasLibrary blas;
  const bool whole = library.Find("cublasLtGetVersion", blas.version) && library.Find("cublasLtCreate", blas.create) &&
                     library.Find("cublasLtDestroy", blas.destroy) &&
                     library.Find("cublasLtGetStatusName", blas.status_name) &&
                     library.Find("cublasLtMatmul", blas.multiply) &&
                     library.Find("cublasLtMatmulAlgoGetHeuristic", blas.find_algorithm) &&
                     library.Find("cublasLtMatmulDescCreate", blas.create_product) &&
                     library.Find("cublasLtMatmulDescDestroy", blas.destroy_product) &&
                     library.Find("cublasLtMatmulDescSetAttribute", blas.set_product) &&
                     library.Find("cublasLtMatrixLayoutCreate", blas.create_layout) &&
                     library.Find("cublasLtMatrixLayoutDestroy", blas.destroy_layout) &&
                     library.Find("cublasLtMatrixLayoutSetAttribute", blas.set_layout) &&
                     library.Find("cublasLtMatmulPreferenceCreate", blas.create_preference) &&
                     library.Find("cublasLtMatmulPreferenceDestroy", blas.destroy_preference) &&
                     library.Find("cublasLtMatmulPreferenceSetAttribute", blas.set_preference);
  if (!whole) {
    return Error{ErrorCode::machine_cannot, "",
                 "the cuBLASLt that is installed is not that of CUDA " + Major() + ": " + SharedLibrary::LoadersWords(),
                 "install the CUDA " + Major() + " toolkit"};
  }
  return blas;
}

}  // namespace tidemark::kernels::cuda
