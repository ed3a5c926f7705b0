// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_capture.h"

#include <cupti.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "profiler/capture/call_source.h"
#include "profiler/capture/cupti_library_cuda.h"
#include "profiler/capture/cupti_records_cuda.h"
#include "profiler/device/steady_now.h"

namespace tidemark {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;  // what CUPTI's manual advises: 1 to 10 MiB
constexpr std::size_t kAlignment = 8;

/// Records of operations come with those of the calls that they belong to, so that calls must be recorded, too.
constexpr std::array kWorkKinds = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,   CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,   CUPTI_ACTIVITY_KIND_OVERHEAD, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER};
constexpr auto kOperations = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

/// Calls that put no work on a stream. They are many, and a record of each takes time.
constexpr std::array kQuietRuntimeCalls = {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020};
constexpr std::array kQuietDriverCalls = {CUPTI_DRIVER_TRACE_CBID_cuEventRecord, CUPTI_DRIVER_TRACE_CBID_cuEventQuery,
                                          CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent};

/// For CUPTI, so that records, phases and tensors have one time.
std::uint64_t ClockOfRecords() { return static_cast<std::uint64_t>(SteadyNow().count()); }

struct FullBuffer {
  std::uint8_t* data = nullptr;
  std::size_t valid = 0;
};

class CuptiCapture;
/// CUPTI's buffer callbacks carry no pointer of ours.
std::atomic<CuptiCapture*> g_capture{nullptr};  // NOLINT: the interface leaves no other way

class CuptiCapture final : public GpuCapture {
 public:
  explicit CuptiCapture(const CuptiLibrary& cupti) : cupti_(cupti) {}
  CuptiCapture(const CuptiCapture&) = delete;
  ~CuptiCapture() override {
    if (subscriber_ != nullptr) {
      for (const CUpti_ActivityKind kind : kinds_) {
        cupti_.disable(kind);
      }
      cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
      cupti_.unsubscribe(subscriber_);
    }
    g_capture = nullptr;
    ReadFullBuffers();
  }

  Status Start(const Options& options) {
    CuptiCapture* nobody = nullptr;
    TIDEMARK_CHECK(g_capture.compare_exchange_strong(nobody, this));
    const CUptiResult subscribed = cupti_.subscribe(&subscriber_, &Called, this);
    if (subscribed == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      subscriber_ = nullptr;
      reduced_ =
          "another profiler is attached to this process, and CUPTI serves one: memory is as the allocator and "
          "the driver's totals say, kernels have no times of their own";
      return Done{};
    }
    TIDEMARK_TRY(Expect(subscribed));
    TIDEMARK_TRY(KeepOffTheGpu());
    TIDEMARK_TRY(Expect(cupti_.register_clock(&ClockOfRecords)));
    TIDEMARK_TRY(Expect(cupti_.register_callbacks(&Requested, &Completed)));
    sources_ = options.allocation_sources;
    if (sources_) {
      TIDEMARK_TRY(Expect(cupti_.enable_sources(1)));
    }
    TIDEMARK_TRY(EnableMemoryCallbacks());
    kinds_ = {CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL};
    records_work_ = options.work;
    if (records_work_) {
      kinds_.insert(kinds_.end(), kWorkKinds.begin(), kWorkKinds.end());
    }
    for (const CUpti_ActivityKind kind : kinds_) {
      TIDEMARK_TRY(Expect(cupti_.enable(kind)));
    }
    if (records_work_) {
      RecordLess();
    }
    return Done{};
  }

  std::string reduced() const override { return reduced_; }
  bool records_work() const override { return records_work_ && reduced_.empty(); }
  void StopAskingForSources() override {
    if (subscriber_ != nullptr && sources_.exchange(false)) {
      cupti_.enable_sources(0);
    }
  }

  void Issuing(std::optional<std::uint64_t> operation) override {
    if (subscriber_ == nullptr) {
      return;
    }
    std::uint64_t before = 0;
    if (std::exchange(issuing_, operation.has_value())) {
      cupti_.pop_operation(kOperations, &before);
    }
    if (operation) {
      cupti_.push_operation(kOperations, *operation);
    }
  }

  std::optional<std::uint32_t> NumberOf(void* stream) override {
    std::uint32_t number = 0;
    const bool known = subscriber_ != nullptr &&
                       cupti_.stream_number(nullptr, static_cast<CUstream>(stream), 0, &number) == CUPTI_SUCCESS;
    return known ? std::optional(number) : std::nullopt;
  }

  GpuRecords TakeWork() override {
    Collect();
    const std::lock_guard lock(mutex_);
    return records_.TakeWork();
  }

  GpuRecords TakeMemory() override {
    Collect();
    const std::lock_guard lock(mutex_);
    GpuRecords work = records_.TakeWork(), memory = std::exchange(records_, {});
    records_.Append(std::move(work));
    return memory;
  }

 private:
  Status Expect(CUptiResult result) const {
    if (result == CUPTI_SUCCESS) {
      return Done{};
    }
    return Error{ErrorCode::machine_cannot, "",
                 cupti_.Describe(result) + ", so nothing can be recorded on this machine",
                 "tidemark doctor says whether there is a GPU and a driver for it"};
  }

  /// Behind the kinds of calls, which are all or none. Where CUPTI does not do it, there are more records than needed.
  void RecordLess() const {
    for (const CUpti_CallbackId call : kQuietRuntimeCalls) {
      cupti_.enable_runtime_call(call, 0);
    }
    for (const CUpti_CallbackId call : kQuietDriverCalls) {
      cupti_.enable_driver_call(call, 0);
    }
    cupti_.enable_all_waits(0);
  }

  /// Its own device buffers would be memory that nobody asked for.
  Status KeepOffTheGpu() const {
    std::uint8_t pinned = 1;
    std::size_t size = sizeof(pinned);
    return Expect(cupti_.set_attribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &size, &pinned));
  }

  static void CUPTIAPI Requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    *size = *buffer == nullptr ? 0 : kBufferBytes;
    *most_records = 0;  // as many as fit
  }

  /// On any thread, between any two calls: the buffer is kept, and read when there is time.
  static void CUPTIAPI Completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                 std::size_t valid) {
    CuptiCapture* capture = g_capture;
    if (capture == nullptr) {
      std::free(buffer);  // NOLINT: as it was allocated
      return;
    }
    std::size_t dropped = 0;
    capture->cupti_.dropped_records(context, stream, &dropped);
    const std::lock_guard lock(capture->mutex_);
    capture->full_.push_back({buffer, valid});
    capture->records_.dropped += static_cast<std::int64_t>(dropped);
  }

  Status EnableMemoryCallbacks() const {
    for (const CUpti_CallbackId call : {CUPTI_DRIVER_TRACE_CBID_cuMemCreate, CUPTI_DRIVER_TRACE_CBID_cuMemRelease,
                                        CUPTI_DRIVER_TRACE_CBID_cuMemMap, CUPTI_DRIVER_TRACE_CBID_cuMemUnmap}) {
      TIDEMARK_TRY(Expect(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, call)));
    }
    for (const CUpti_CallbackId what :
         {CUPTI_CBID_RESOURCE_MODULE_LOADED, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING}) {
      TIDEMARK_TRY(Expect(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, what)));
    }
    return Done{};
  }

  static void CUPTIAPI Called(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId call, const void* data) {
    auto& capture = *static_cast<CuptiCapture*>(self);
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      capture.NoteModule(call, *static_cast<const CUpti_ResourceData*>(data));
      return;
    }
    const auto& info = *static_cast<const CUpti_CallbackData*>(data);
    if (info.callbackSite != CUPTI_API_EXIT ||
        *static_cast<const CUresult*>(info.functionReturnValue) != CUDA_SUCCESS) {
      return;
    }
    GpuVirtualMemoryRecord record;
    record.at = SteadyNow();
    Describe(call, info.functionParams, record);
    if (capture.sources_ && record.call == GpuVirtualMemoryRecord::Call::create) {
      record.source = CallerOfDriver();
    }
    const std::lock_guard lock(capture.mutex_);
    capture.records_.virtual_memory.push_back(std::move(record));
  }

  void NoteModule(CUpti_CallbackId what, const CUpti_ResourceData& data) {
    const auto* const module = static_cast<const CUpti_ModuleResourceData*>(data.resourceDescriptor);
    if (module == nullptr) {
      return;
    }
    GpuModuleRecord record;
    record.load = what == CUPTI_CBID_RESOURCE_MODULE_LOADED;
    record.module = module->moduleId;
    record.bytes = record.load ? Bytes(static_cast<std::int64_t>(module->cubinSize)) : Bytes();
    record.at = SteadyNow();
    const std::lock_guard lock(mutex_);
    records_.modules.push_back(record);
  }

  static void Describe(CUpti_CallbackId call, const void* parameters, GpuVirtualMemoryRecord& record) {
    const auto size = [](std::size_t bytes) { return Bytes(static_cast<std::int64_t>(bytes)); };
    switch (call) {
      case CUPTI_DRIVER_TRACE_CBID_cuMemCreate: {
        const auto& made = *static_cast<const cuMemCreate_params*>(parameters);
        record.call = GpuVirtualMemoryRecord::Call::create;
        record.handle = *made.handle;
        record.bytes = size(made.size);
        break;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemRelease:
        record.call = GpuVirtualMemoryRecord::Call::release;
        record.handle = static_cast<const cuMemRelease_params*>(parameters)->handle;
        break;
      case CUPTI_DRIVER_TRACE_CBID_cuMemMap: {
        const auto& mapped = *static_cast<const cuMemMap_params*>(parameters);
        record.call = GpuVirtualMemoryRecord::Call::map;
        record.handle = mapped.handle;
        record.address = mapped.ptr;
        record.bytes = size(mapped.size);
        break;
      }
      default: {
        const auto& unmapped = *static_cast<const cuMemUnmap_params*>(parameters);
        record.call = GpuVirtualMemoryRecord::Call::unmap;
        record.address = unmapped.ptr;
        record.bytes = size(unmapped.size);
      }
    }
  }

  /// All work has ended: a buffer that is not handed out by now without force is handed out with it, and a record of it
  /// that has no times counts as such.
  void Collect() {
    if (subscriber_ != nullptr) {
      cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    }
    ReadFullBuffers();
  }

  void ReadFullBuffers() {
    std::vector<FullBuffer> full;
    {
      const std::lock_guard lock(mutex_);
      full.swap(full_);
    }
    GpuRecords read;
    for (const FullBuffer& buffer : full) {
      AppendRecords(buffer.data, buffer.valid, cupti_.next_record, read);
      std::free(buffer.data);  // NOLINT: as it was allocated
    }
    const std::lock_guard lock(mutex_);
    records_.Append(std::move(read));
  }

  CuptiLibrary cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::string reduced_;
  bool issuing_ = false, records_work_ = false;
  std::atomic<bool> sources_ = false;  ///< asked by callbacks, on whatever thread allocates
  std::vector<CUpti_ActivityKind> kinds_;
  std::mutex mutex_;  ///< over what CUPTI's threads touch
  std::vector<FullBuffer> full_;
  GpuRecords records_;
};

}  // namespace

Result<std::unique_ptr<GpuCapture>> GpuCapture::Begin(const Options& options) {
  TIDEMARK_ASSIGN(const CuptiLibrary cupti, LoadCupti());
  auto capture = std::make_unique<CuptiCapture>(cupti);
  TIDEMARK_TRY(capture->Start(options));
  return std::unique_ptr<GpuCapture>(std::move(capture));
}

Result<std::string> CuptiVersion() {
  TIDEMARK_ASSIGN(const CuptiLibrary cupti, LoadCupti());
  std::uint32_t version = 0;
  if (const CUptiResult asked = cupti.version(&version); asked != CUPTI_SUCCESS) {
    return Error{ErrorCode::machine_cannot, "", cupti.Describe(asked), ""};
  }
  return fmt::format("{}.{}", version / 10000, version / 100 % 100);  // cupti_version.h, CUPTI_API_VERSION
}

}  // namespace tidemark
