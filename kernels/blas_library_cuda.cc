// SPDX-License-Identifier: Apache-2.0
#include "kernels/blas_library_cuda.h"

#include <dlfcn.h>

#include <array>
#include <string>

namespace tidemark::kernels::cuda {
namespace {

/// The library of another major version has other structures.
std::string Major() { return std::to_string(CUBLAS_VER_MAJOR); }

void* Open() {
  const std::string name = "libcublasLt.so." + Major();
  const std::array<std::string, 3> places = {name, "/usr/local/cuda/lib64/" + name,
                                             "/usr/local/cuda-" + Major() + "/lib64/" + name};
  for (const std::string& place : places) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return library;
    }
  }
  return nullptr;
}

template <class Call>
bool Find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  return call != nullptr;
}

}  // namespace

Result<BlasLibrary> LoadBlasLibrary() {
  void* library = Open();
  if (library == nullptr) {
    return Error{ErrorCode::machine_cannot, "", "cuBLASLt (libcublasLt.so." + Major() + ") is not installed",
                 "it is part of the CUDA " + Major() + " toolkit; set LD_LIBRARY_PATH to its folder"};
  }
  BlasLibrary blas;
  const bool whole = Find(library, "cublasLtCreate", blas.create) && Find(library, "cublasLtDestroy", blas.destroy) &&
                     Find(library, "cublasLtGetStatusName", blas.status_name) &&
                     Find(library, "cublasLtMatmul", blas.multiply) &&
                     Find(library, "cublasLtMatmulAlgoGetHeuristic", blas.find_algorithm) &&
                     Find(library, "cublasLtMatmulDescCreate", blas.create_product) &&
                     Find(library, "cublasLtMatmulDescDestroy", blas.destroy_product) &&
                     Find(library, "cublasLtMatmulDescSetAttribute", blas.set_product) &&
                     Find(library, "cublasLtMatrixLayoutCreate", blas.create_layout) &&
                     Find(library, "cublasLtMatrixLayoutDestroy", blas.destroy_layout) &&
                     Find(library, "cublasLtMatrixLayoutSetAttribute", blas.set_layout) &&
                     Find(library, "cublasLtMatmulPreferenceCreate", blas.create_preference) &&
                     Find(library, "cublasLtMatmulPreferenceDestroy", blas.destroy_preference) &&
                     Find(library, "cublasLtMatmulPreferenceSetAttribute", blas.set_preference);
  if (!whole) {
    return Error{ErrorCode::machine_cannot, "",
                 "the cuBLASLt that is installed is not that of CUDA " + Major() + ": " + dlerror(),
                 "install the CUDA " + Major() + " toolkit"};
  }
  return blas;
}

}  // namespace tidemark::kernels::cuda
