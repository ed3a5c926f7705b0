// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/cupti_library_cuda.h"

#include <fmt/format.h>

#include "base/shared_library.h"

namespace tidemark {
namespace {

constexpr int kMajor = CUPTI_API_VERSION / 10000;  // 130001: the library of another major version has other records

}  // namespace

std::string CuptiLibrary::Describe(CUptiResult result) const {
  const char* name = nullptr;
  return result_string(result, &name) == CUPTI_SUCCESS ? fmt::format("CUPTI answers {}", name)
                                                       : fmt::format("CUPTI answers {}", static_cast<int>(result));
}

Result<CuptiLibrary> LoadCupti() {
  const SharedLibrary library = SharedLibrary::OfCuda(fmt::format("libcupti.so.{}", kMajor), kMajor);
  if (!library.is_there()) {
    return Error{ErrorCode::machine_cannot, "", fmt::format("CUPTI (libcupti.so.{}) is not installed", kMajor),
                 fmt::format("it is part of the CUDA {} toolkit; set LD_LIBRARY_PATH to its folder", kMajor)};
  }
  CuptiLibrary cupti;
  const bool whole =
      library.Find("cuptiGetVersion", cupti.version) && library.Find("cuptiSubscribe", cupti.subscribe) &&
      library.Find("cuptiUnsubscribe", cupti.unsubscribe) &&
      library.Find("cuptiEnableCallback", cupti.enable_callback) &&
      library.Find("cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
      library.Find("cuptiActivityRegisterTimestampCallback", cupti.register_clock) &&
      library.Find("cuptiActivitySetAttribute", cupti.set_attribute) &&
      library.Find("cuptiActivityEnable", cupti.enable) && library.Find("cuptiActivityDisable", cupti.disable) &&
      library.Find("cuptiActivityEnableAllocationSource", cupti.enable_sources) &&
      library.Find("cuptiActivityEnableRuntimeApi", cupti.enable_runtime_call) &&
      library.Find("cuptiActivityEnableDriverApi", cupti.enable_driver_call) &&
      library.Find("cuptiActivityEnableAllSyncRecords", cupti.enable_all_waits) &&
      library.Find("cuptiActivityFlushAll", cupti.flush) &&
      library.Find("cuptiActivityGetNextRecord", cupti.next_record) &&
      library.Find("cuptiActivityGetNumDroppedRecords", cupti.dropped_records) &&
      library.Find("cuptiActivityPushExternalCorrelationId", cupti.push_operation) &&
      library.Find("cuptiActivityPopExternalCorrelationId", cupti.pop_operation) &&
      library.Find("cuptiGetStreamIdEx", cupti.stream_number) &&
      library.Find("cuptiGetResultString", cupti.result_string);
  if (!whole) {
    return Error{
        ErrorCode::machine_cannot, "",
        fmt::format("the CUPTI that is installed is not that of CUDA {}: {}", kMajor, SharedLibrary::LoadersWords()),
        fmt::format("install the CUDA {} toolkit", kMajor)};
  }
  return cupti;
}

}  // namespace tidemark
