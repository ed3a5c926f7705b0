// SPDX-License-Identifier: Apache-2.0
#include "kernels/blas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/blas_library_cuda.h"
#include "kernels/together.h"

namespace tidemark::kernels::cuda {
namespace {

/// Owns an object of the library.
template <class T>
using Owned = std::unique_ptr<T, cublasStatus_t (*)(T*)>;

cudaDataType_t DataType(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

/// What a pointer is a multiple of, up to what all of the library's ways are content with.
std::uint32_t Alignment(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return address % 256 == 0 ? 256 : static_cast<std::uint32_t>(address & (~address + 1));
}

/// What the library's choice depends on.
struct Question {
  BlasProduct product;
  std::array<std::uint32_t, 4> alignments = {};  ///< of a, b, d, bias
  std::int64_t workspace_bytes = 0;
  friend auto operator<=>(const Question&, const Question&) = default;
};

struct Answer {
  Owned<cublasLtMatmulDescOpaque_t> product;
  Owned<cublasLtMatrixLayoutOpaque_t> a, b, d;
  cublasLtMatmulAlgo_t algorithm;
};

class CublasLt final : public Blas {
 public:
  CublasLt(const BlasLibrary& library, cublasLtHandle_t handle) : library_(library), handle_(handle) {}
  ~CublasLt() override {
    answers_.clear();
    library_.destroy(handle_);
  }

  std::int64_t declined() const override {
    return std::count_if(answers_.begin(), answers_.end(), [](const auto& asked) { return !asked.second; });
  }
  bool Multiply(const BlasProduct& product, const BlasOperands& operands, const Queue& queue) override {
    if (product.batch > std::numeric_limits<std::int32_t>::max()) {
      return false;
    }
    const Question question{product,
                            {Alignment(operands.a), Alignment(operands.b), Alignment(operands.d),
                             product.bias ? Alignment(operands.bias) : 0},
                            queue.workspace == nullptr ? 0 : queue.workspace_bytes};
    auto found = answers_.find(question);
    if (found == answers_.end()) {
      found = answers_.emplace(question, Ask(question, operands.bias)).first;
    }
    if (!found->second) {
      return false;
    }
    const Answer& answer = *found->second;
    if (product.bias) {
      SetProduct(answer, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    const bool wide = product.d.dtype == DType::fp64;
    const float one = 1, added = product.accumulate ? 1 : 0;
    const double wide_one = 1, wide_added = product.accumulate ? 1 : 0;
    LaunchWaiting(queue);
    const cublasStatus_t done = library_.multiply(
        handle_, answer.product.get(), wide ? static_cast<const void*>(&wide_one) : &one, operands.a, answer.a.get(),
        operands.b, answer.b.get(), wide ? static_cast<const void*>(&wide_added) : &added, operands.d, answer.d.get(),
        operands.d, answer.d.get(), &answer.algorithm, queue.workspace,
        static_cast<std::size_t>(question.workspace_bytes), static_cast<cudaStream_t>(queue.stream));
    if (IsUnable(done)) {
      found->second.reset();
      return false;
    }
    Check(done);
    return true;
  }

 private:
  /// To what it has no way to do it answers either: some combinations of dtypes, layouts and epilogues are invalid to
  /// it.
  static bool IsUnable(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  }

  void Check(cublasStatus_t status) const {
    if (status != CUBLAS_STATUS_SUCCESS) {
      Fail(library_.status_name(status), __FILE__, __LINE__);
    }
  }

  template <class Value>
  void SetProduct(const Answer& answer, cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    Check(library_.set_product(answer.product.get(), attribute, &value, sizeof(value)));
  }

  Owned<cublasLtMatmulDescOpaque_t> NewProduct(bool wide) const {
    cublasLtMatmulDesc_t made = nullptr;
    Check(
        library_.create_product(&made, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F));
    return {made, library_.destroy_product};
  }

  Owned<cublasLtMatrixLayoutOpaque_t> NewLayout(const BlasMatrix& matrix, std::int64_t batch) const {
    cublasLtMatrixLayout_t made = nullptr;
    Check(library_.create_layout(&made, DataType(matrix.dtype), static_cast<std::uint64_t>(matrix.rows),
                                 static_cast<std::uint64_t>(matrix.columns), matrix.leading));
    const auto count = static_cast<std::int32_t>(batch);
    Check(library_.set_layout(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    Check(library_.set_layout(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.step, sizeof(matrix.step)));
    return {made, library_.destroy_layout};
  }

  /// Long sums may be shared by blocks only where partial sums stay in the arithmetic's dtype, in the workspace: the
  /// other ways round them to the output's.
  Owned<cublasLtMatmulPreferenceOpaque_t> NewPreference(const Question& question) const {
    cublasLtMatmulPreference_t made = nullptr;
    Check(library_.create_preference(&made));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      Check(library_.set_preference(made, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(question.workspace_bytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, question.alignments[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, question.alignments[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, question.alignments[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, question.alignments[2]);
    return {made, library_.destroy_preference};
  }

  /// The library's first choice, if it has one.
  std::optional<Answer> Ask(const Question& question, const void* bias) const {
    const BlasProduct& asked = question.product;
    Answer answer{NewProduct(asked.d.dtype == DType::fp64),
                  NewLayout(asked.a, asked.batch),
                  NewLayout(asked.b, asked.batch),
                  NewLayout(asked.d, asked.batch),
                  {}};
    SetProduct(answer, CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{asked.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    SetProduct(answer, CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{asked.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    if (asked.bias) {
      SetProduct(answer, CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
      SetProduct(answer, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    const auto preference = NewPreference(question);
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    const cublasStatus_t status =
        library_.find_algorithm(handle_, answer.product.get(), answer.a.get(), answer.b.get(), answer.d.get(),
                                answer.d.get(), preference.get(), 1, &best, &found);
    if (IsUnable(status) || (status == CUBLAS_STATUS_SUCCESS && (found == 0 || IsUnable(best.state)))) {
      return std::nullopt;
    }
    Check(status);
    answer.algorithm = best.algo;
    return answer;
  }

  BlasLibrary library_;
  cublasLtHandle_t handle_;
  std::map<Question, std::optional<Answer>> answers_;
};

}  // namespace

Result<std::unique_ptr<Blas>> OpenCublasLt() {
  Result<BlasLibrary> library = LoadBlasLibrary();
  if (!library) {
    return library.error();
  }
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library->create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return Error{ErrorCode::machine_cannot, "",
                 std::string("cuBLASLt does not begin: it answers ") + library->status_name(status),
                 "is there a GPU, with a driver for this CUDA toolkit?"};
  }
  return std::unique_ptr<Blas>(std::make_unique<CublasLt>(*library, handle));
}

Result<std::string> CublasLtVersion() {
  TIDEMARK_ASSIGN(const BlasLibrary library, LoadBlasLibrary());
  const std::size_t version = library.version();  // cublas_api.h, CUBLAS_VERSION
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace tidemark::kernels::cuda
