// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cupti.h>

#include <memory>

#include "base/result.h"

namespace tidemark {

/// CUPTI's calls, found in its library at run time. The library stays until the process ends: CUPTI calls back from
/// threads of its own.
struct CuptiLibrary {
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivitySetAttribute) set_attribute = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityEnableAllocationSource) enable_sources = nullptr;
  decltype(&cuptiActivityEnableRuntimeApi) enable_runtime_call = nullptr;
  decltype(&cuptiActivityEnableDriverApi) enable_driver_call = nullptr;
  decltype(&cuptiActivityEnableAllSyncRecords) enable_all_waits = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_operation = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_operation = nullptr;
  decltype(&cuptiGetStreamIdEx) stream_number = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  /// "CUPTI answers CUPTI_ERROR_UNKNOWN".
  std::string Describe(CUptiResult result) const;
};

/// Looks beside the CUDA runtime's usual places and in the loader's path. Fails with machine_cannot.
Result<CuptiLibrary> LoadCupti();

}  // namespace tidemark
