// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/cupti_library_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

namespace tidemark {
namespace {

constexpr int kMajor = CUPTI_API_VERSION / 10000;  // 130001: the library of another major version has other records

void* Open() {
  const std::string name = fmt::format("libcupti.so.{}", kMajor);
  const std::array<std::string, 4> places = {name, "/usr/local/cuda/lib64/" + name,
                                             "/usr/local/cuda/extras/CUPTI/lib64/" + name,
                                             fmt::format("/usr/local/cuda-{}/lib64/{}", kMajor, name)};
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

std::string CuptiLibrary::Describe(CUptiResult result) const {
  const char* name = nullptr;
  return result_string(result, &name) == CUPTI_SUCCESS ? fmt::format("CUPTI answers {}", name)
                                                       : fmt::format("CUPTI answers {}", static_cast<int>(result));
}

Result<CuptiLibrary> LoadCupti() {
  void* library = Open();
  if (library == nullptr) {
    return Error{ErrorCode::machine_cannot, "", fmt::format("CUPTI (libcupti.so.{}) is not installed", kMajor),
                 fmt::format("it is part of the CUDA {} toolkit; set LD_LIBRARY_PATH to its folder", kMajor)};
  }
  CuptiLibrary cupti;
  const bool whole =
      Find(library, "cuptiSubscribe", cupti.subscribe) && Find(library, "cuptiUnsubscribe", cupti.unsubscribe) &&
      Find(library, "cuptiEnableCallback", cupti.enable_callback) &&
      Find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
      Find(library, "cuptiActivityRegisterTimestampCallback", cupti.register_clock) &&
      Find(library, "cuptiActivitySetAttribute", cupti.set_attribute) &&
      Find(library, "cuptiActivityEnable", cupti.enable) && Find(library, "cuptiActivityDisable", cupti.disable) &&
      Find(library, "cuptiActivityEnableAllocationSource", cupti.enable_sources) &&
      Find(library, "cuptiActivityFlushAll", cupti.flush) &&
      Find(library, "cuptiActivityGetNextRecord", cupti.next_record) &&
      Find(library, "cuptiActivityGetNumDroppedRecords", cupti.dropped_records) &&
      Find(library, "cuptiActivityPushExternalCorrelationId", cupti.push_operation) &&
      Find(library, "cuptiActivityPopExternalCorrelationId", cupti.pop_operation) &&
      Find(library, "cuptiGetResultString", cupti.result_string);
  if (!whole) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("the CUPTI that is installed is not that of CUDA {}: {}", kMajor, dlerror()),
                 fmt::format("install the CUDA {} toolkit", kMajor)};
  }
  return cupti;
}

}  // namespace tidemark
