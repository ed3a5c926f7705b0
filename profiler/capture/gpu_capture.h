// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "profiler/capture/gpu_records.h"

namespace tidemark {

/// Records what the GPU does for this process, from Begin until it goes. CUPTI is looked for when it begins, so that
/// programs start where there is none; there is at most one capture in a process, as CUPTI serves one subscriber.
class GpuCapture {
 public:
  struct Options {
    bool work = true;                 ///< kernels, copies, fills and their operations, beside memory
    bool allocation_sources = false;  ///< which library asked for memory; costs a look at the stack per allocation
  };
  /// Of what CUPTI itself takes on the GPU: its buffers lie in pinned host memory, so none.
  static constexpr bool kBuffersInHostMemory = true;

  /// Must come before the process first uses the GPU: what is allocated before is not seen. Fails with machine_cannot
  /// where there is no CUPTI or no driver. Where another profiler has the subscription there is no error: see
  /// `reduced`.
  static Result<std::unique_ptr<GpuCapture>> Begin(const Options& options);

  virtual ~GpuCapture() = default;

  /// Why only allocators' own counts are to be had, in one sentence: another profiler (Nsight, a framework's) is
  /// attached, and CUPTI serves one. Empty: everything is recorded.
  virtual std::string reduced() const = 0;
  /// Whether kernels, copies and fills are recorded (Options::work).
  virtual bool records_work() const = 0;
  /// From now on nobody looks who asked for memory, which costs a look at the stack per allocation: libraries have
  /// taken theirs.
  virtual void StopAskingForSources() = 0;
  /// What this thread issues until the next call belongs to this operation; nothing: to none.
  virtual void Issuing(std::optional<std::uint64_t> operation) = 0;
  /// By which number records call a CUDA stream; nothing where CUPTI does not say.
  virtual std::optional<std::uint32_t> NumberOf(void* stream) = 0;
  /// Work, operations and overhead since the last call. All of the GPU's work must have ended (cudaDeviceSynchronize).
  virtual GpuRecords TakeWork() = 0;
  /// What is of memory since the last call, and how many records of any kind were dropped or had no times. All work
  /// must have ended.
  virtual GpuRecords TakeMemory() = 0;
};

/// "13.0": of the CUPTI that would record. Needs no GPU. Fails with machine_cannot where there is none.
Result<std::string> CuptiVersion();

}  // namespace tidemark
