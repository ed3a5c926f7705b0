// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/nvtx_annotations.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "profiler/capture/heap.h"

namespace tidemark {
namespace {

constexpr std::uint32_t kOutside = 1;  // categories are numbers from 1 on, as 0 is none

std::uint32_t CategoryOf(std::optional<Phase> phase) {
  return phase ? kOutside + 1 + static_cast<std::uint32_t>(*phase) : kOutside;
}

const void* Pointer(std::uint64_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr): as allocators count
}

class NvtxAnnotations final : public Annotations {
 public:
  NvtxAnnotations() : domain_(nvtxDomainCreateA("tidemark")) {
    if (domain_ == nullptr) {
      return;
    }
    nvtxDomainNameCategoryA(domain_, kOutside, "step");
    for (std::size_t i = 0; i < kPhases; ++i) {
      const auto phase = static_cast<Phase>(i);
      nvtxDomainNameCategoryA(domain_, CategoryOf(phase), std::string(tidemark::Name(phase)).c_str());
    }
  }
  ~NvtxAnnotations() override { nvtxDomainDestroy(domain_); }
  NvtxAnnotations(const NvtxAnnotations&) = delete;
  NvtxAnnotations& operator=(const NvtxAnnotations&) = delete;

  void Begin(const Annotation& what) override {
    if (domain_ == nullptr) {
      return;
    }
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.category = CategoryOf(what.phase);
    if (what.microbatch >= 0) {
      attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
      attributes.payload.llValue = what.microbatch;
    }
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = Registered(what.name);
    nvtxDomainRangePushEx(domain_, &attributes);
  }
  void End() override {
    if (domain_ != nullptr) {
      nvtxDomainRangePop(domain_);
    }
  }

  // A checker of memory may serve the memory extension alone: without a domain of its own, whose handle is null then.

  void HeapComes(std::uint64_t address, Bytes bytes) override {
    const nvtxMemVirtualRangeDesc_t range{static_cast<std::size_t>(bytes.count()), Pointer(address)};
    nvtxMemHeapDesc_t heap{};
    heap.extCompatID = NVTX_EXT_COMPATID_MEM;
    heap.structSize = sizeof(heap);
    heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    heap.typeSpecificDescSize = sizeof(range);
    heap.typeSpecificDesc = &range;
    const nvtxMemHeapHandle_t handle = nvtxMemHeapRegister(domain_, &heap);
    if (handle != nullptr) {
      const HeapScope scope(HeapOwner::profiler);
      heaps_[address] = {handle, address + static_cast<std::uint64_t>(bytes.count())};
    }
  }
  void HeapGoes(std::uint64_t address) override {
    if (const auto heap = heaps_.find(address); heap != heaps_.end()) {
      nvtxMemHeapUnregister(domain_, heap->second.handle);
      heaps_.erase(heap);
    }
  }
  void RegionComes(std::uint64_t address, Bytes bytes) override {
    const auto behind = heaps_.upper_bound(address);
    if (behind == heaps_.begin() || std::prev(behind)->second.end <= address) {
      return;  // nobody has taken the heap
    }
    const nvtxMemVirtualRangeDesc_t range{static_cast<std::size_t>(bytes.count()), Pointer(address)};
    nvtxMemRegionsRegisterBatch_t regions{};
    regions.extCompatID = NVTX_EXT_COMPATID_MEM;
    regions.structSize = sizeof(regions);
    regions.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    regions.heap = std::prev(behind)->second.handle;
    regions.regionCount = 1;
    regions.regionDescElementSize = sizeof(range);
    regions.regionDescElements = &range;
    nvtxMemRegionsRegister(domain_, &regions);
  }
  void RegionGoes(std::uint64_t address) override {
    if (heaps_.empty()) {
      return;
    }
    nvtxMemRegionRef_t region{};
    region.pointer = Pointer(address);
    nvtxMemRegionsUnregisterBatch_t regions{};
    regions.extCompatID = NVTX_EXT_COMPATID_MEM;
    regions.structSize = sizeof(regions);
    regions.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    regions.refCount = 1;
    regions.refElementSize = sizeof(region);
    regions.refElements = &region;
    nvtxMemRegionsUnregister(domain_, &regions);
  }
  void NameRegion(std::uint64_t address, std::string_view name) override {
    if (heaps_.empty()) {
      return;
    }
    const std::string text(name);  // compute-sanitizer's manual shows names as plain text only
    nvtxMemRegionNameDesc_t named{};
    named.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    named.nameType = NVTX_MESSAGE_TYPE_ASCII;
    named.region.pointer = Pointer(address);
    named.name.ascii = text.c_str();
    nvtxMemRegionsNameBatch_t names{};
    names.extCompatID = NVTX_EXT_COMPATID_MEM;
    names.structSize = sizeof(names);
    names.regionCount = 1;
    names.regionElementSize = sizeof(named);
    names.regionElements = &named;
    nvtxMemRegionsName(domain_, &names);
  }

 private:
  struct Heap {
    nvtxMemHeapHandle_t handle = nullptr;
    std::uint64_t end = 0;
  };

  nvtxStringHandle_t Registered(std::string_view name) {
    const HeapScope scope(HeapOwner::profiler);
    auto found = strings_.find(name);
    if (found == strings_.end()) {
      const std::string text(name);
      found = strings_.emplace(text, nvtxDomainRegisterStringA(domain_, text.c_str())).first;
    }
    return found->second;
  }

  nvtxDomainHandle_t domain_;  ///< nullptr: nobody listens
  std::map<std::string, nvtxStringHandle_t, std::less<>> strings_;
  std::map<std::uint64_t, Heap> heaps_;  ///< by address; those that a tool has taken
};

}  // namespace

std::unique_ptr<Annotations> MakeNvtxAnnotations() { return std::make_unique<NvtxAnnotations>(); }

}  // namespace tidemark
