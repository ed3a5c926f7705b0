// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/cupti_records_cuda.h"

#include <cstdlib>
#include <utility>

namespace tidemark {
namespace {

Nanos At(std::uint64_t nanoseconds) { return Nanos(static_cast<std::int64_t>(nanoseconds)); }
Bytes Size(std::uint64_t bytes) { return Bytes(static_cast<std::int64_t>(bytes)); }

GpuMemoryRecord::Kind KindOf(CUpti_ActivityMemoryKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC:
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      return GpuMemoryRecord::Kind::device;
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return GpuMemoryRecord::Kind::pinned_host;
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC:
      return GpuMemoryRecord::Kind::managed;
    default:
      return GpuMemoryRecord::Kind::other;
  }
}

void Append(const CuptiMemory& record, GpuRecords& records) {
  GpuMemoryRecord memory;
  memory.alloc = record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  memory.kind = KindOf(static_cast<CUpti_ActivityMemoryKind>(record.memoryKind));
  memory.from_pool = record.memoryPoolConfig.memoryPoolType == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  memory.pool = memory.from_pool ? record.memoryPoolConfig.address : 0;
  memory.address = record.address;
  memory.bytes = Size(record.bytes);
  memory.pool_bytes = memory.from_pool ? Size(record.memoryPoolConfig.pool.size) : Bytes();
  memory.at = At(record.timestamp);
  memory.source = record.source == nullptr ? "" : record.source;
  records.without_times += record.timestamp == 0 ? 1 : 0;
  records.memory.push_back(std::move(memory));
}

/// A pool grows with what is allocated from it, whose records say so; it shrinks by itself.
void Append(const CuptiPool& record, GpuRecords& records) {
  const bool is_local = record.memoryPoolType == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  if (!is_local || record.memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED) {
    return;
  }
  const bool stays = record.memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
  GpuMemoryRecord memory;
  memory.alloc = false;
  memory.from_pool = true;
  memory.pool = record.address;
  memory.pool_bytes = stays ? Size(record.size) : Bytes();
  memory.at = At(record.timestamp);
  records.without_times += record.timestamp == 0 ? 1 : 0;
  records.memory.push_back(std::move(memory));
}

template <class Record>
void AppendWork(const Record& record, GpuWorkRecord work, GpuRecords& records) {
  work.stream = record.streamId;
  work.correlation = record.correlationId;
  work.start = At(record.start);
  work.end = At(record.end);
  records.without_times += record.start == 0 || record.end == 0 ? 1 : 0;
  records.work.push_back(std::move(work));
}

}  // namespace

void AppendRecords(std::uint8_t* buffer, std::size_t valid, decltype(&cuptiActivityGetNextRecord) next,
                   GpuRecords& records) {
  using Kind = GpuWorkRecord::Kind;
  CUpti_Activity* record = nullptr;
  while (next(buffer, valid, &record) == CUPTI_SUCCESS) {
    const void* at = record;
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_MEMORY2:
        Append(*static_cast<const CuptiMemory*>(at), records);
        break;
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *static_cast<const CuptiKernel*>(at);
        AppendWork(kernel,
                   {.kind = Kind::kernel,
                    .name = kernel.name == nullptr ? "" : kernel.name,
                    .bytes = {},
                    .start = {},
                    .end = {}},
                   records);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = *static_cast<const CuptiCopy*>(at);
        AppendWork(copy, {.kind = Kind::copy, .name = {}, .bytes = Size(copy.bytes), .start = {}, .end = {}}, records);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& fill = *static_cast<const CuptiFill*>(at);
        AppendWork(fill, {.kind = Kind::fill, .name = {}, .bytes = Size(fill.bytes), .start = {}, .end = {}}, records);
        break;
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& operation = *static_cast<const CuptiOperation*>(at);
        records.operations.push_back({operation.externalId, operation.correlationId});
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
        Append(*static_cast<const CuptiPool*>(at), records);
        break;
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const auto& wait = *static_cast<const CuptiWait*>(at);
        if (wait.type != CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT) {  // streams wait there, not the host
          records.without_times += wait.start == 0 || wait.end == 0 ? 1 : 0;
          records.waits.push_back({At(wait.start), At(wait.end)});
        }
        break;
      }
      case CUPTI_ACTIVITY_KIND_OVERHEAD: {
        const auto& overhead = *static_cast<const CuptiOverhead*>(at);
        records.overhead.push_back({At(overhead.start), At(overhead.end)});
        std::free(overhead.overheadData);  // NOLINT: the reader's, by CUPTI's manual
        break;
      }
      default:
        ++records.unknown;
    }
  }
}

}  // namespace tidemark
