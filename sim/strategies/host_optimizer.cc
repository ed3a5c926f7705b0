// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/host_optimizer.h"

#include <utility>

namespace tidemark {

Place StatePlace(const Job& job) { return job.axes.optimizer_step.offload ? Place::host : Place::device; }

StreamId StateStream(const Role& role) { return role.job.axes.optimizer_step.offload ? kHostStream : role.compute; }

BufferRef DeclareOnHost(Role& role, std::string_view name, Category category, DType dtype, std::int64_t elements,
                        bool resident, bool kept) {
  if (elements == 0) {
    return {};
  }
  return {role.builder.AddBuffer(
              {std::string(name), category, dtype, elements, {1, 1}, kHostStream, Place::host, resident, kept}),
          {}};
}

void CopyOverLink(Role& role, std::string_view name, StreamId stream, std::vector<BufferRef> reads,
                  std::vector<BufferRef> writes, std::int64_t elements, DType dtype) {
  role.builder.Emit(
      Copy{role.builder.Named(name), stream, SizeOf(dtype) * elements, std::move(reads), std::move(writes)});
}

}  // namespace tidemark
