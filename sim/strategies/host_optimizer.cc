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

RunBuffers PerBlockOnHost(Role& role, const std::string& name, Category category, DType dtype,
                          const std::vector<std::int64_t>& elements, bool kept) {
  RunBuffers buffers;
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    buffers.push_back(elements[run] == 0 ? BufferId{}
                                         : role.builder.AddBuffer({name + " " + role.stage.runs[run].block().name,
                                                                   category,
                                                                   dtype,
                                                                   elements[run],
                                                                   {role.stage.runs[run].count, 1},
                                                                   kHostStream,
                                                                   Place::host,
                                                                   kept,
                                                                   kept}));
  }
  return buffers;
}

void CopyOverLink(Role& role, std::string_view name, StreamId stream, std::vector<BufferRef> reads,
                  std::vector<BufferRef> writes, std::int64_t elements, DType dtype) {
  role.builder.Emit(
      Copy{role.builder.Named(name), stream, SizeOf(dtype) * elements, std::move(reads), std::move(writes)});
}

}  // namespace tidemark
