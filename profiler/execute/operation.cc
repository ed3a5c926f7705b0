// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/operation.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tidemark {

DType Stored(DType dtype, bool exact) {
  const bool floating = dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32;
  return exact && floating ? DType::fp64 : dtype;
}

bool OperationContext::Adds(std::size_t i) const {
  for (const Operand& read : reads) {
    if (read.ref == writes[i].ref) {
      return true;
    }
  }
  return false;
}

Result<Operation> Bind(const OperationContext& context) {
  // What is done again is the same row of the tables, with other tensors.
  constexpr std::string_view kAgain = "_recomputed";
  std::string_view action = context.name;
  if (action.ends_with(kAgain)) {
    action.remove_suffix(kAgain.size());
  }
  if (const Calculate* row = context.model.ActionOf(action)) {
    return BindNetworkOperation(context, *row);
  }
  if (std::optional<Result<Operation>> clip = BindClip(context)) {
    return std::move(*clip);
  }
  return BindStateOperation(context);
}

Error NotExecuted(std::string_view what) {
  return {ErrorCode::machine_cannot, "", fmt::format("the executor has no arithmetic for {} yet", what),
          "tidemark predict prices this job; README (\"Is it true? Run it.\") says what run executes so far"};
}

}  // namespace tidemark
