// SPDX-License-Identifier: Apache-2.0
// A tool as NVTX loads it into a process (NVTX_INJECTION64_PATH): it writes down what the process says.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <deque>
#include <map>
#include <string>

#include "tests/profiler/capture/nvtx_tool.h"

namespace tidemark {
namespace {

NvtxToolLog log;
std::deque<std::string> strings;  // a registered one's handle is its address
std::map<std::uint32_t, std::string> categories;
int domain_of_ours;  // whose address stands for the domain

nvtxDomainHandle_t Domain() { return reinterpret_cast<nvtxDomainHandle_t>(&domain_of_ours); }

Announced& Add(nvtxDomainHandle_t domain, Announced::Kind kind) {
  log.strangers += domain == Domain() ? 0 : 1;
  Announced& one = log.all.emplace_back();
  one.kind = kind;
  return one;
}

std::string Text(std::int32_t type, const nvtxMessageValue_t& message) {
  log.unregistered += type == NVTX_MESSAGE_TYPE_REGISTERED ? 0 : 1;
  return type == NVTX_MESSAGE_TYPE_REGISTERED ? *reinterpret_cast<const std::string*>(message.registered) : "";
}

nvtxDomainHandle_t CreateDomain(const char* name) {
  log.domains.emplace_back(name);
  return Domain();
}
void DestroyDomain(nvtxDomainHandle_t) { ++log.domains_gone; }
nvtxStringHandle_t RegisterString(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(&strings.emplace_back(text));
}
void NameCategory(nvtxDomainHandle_t, std::uint32_t category, const char* name) { categories[category] = name; }
int Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* what) {
  Announced& one = Add(domain, Announced::Kind::push);
  one.name = Text(what->messageType, what->message);
  one.category = categories[what->category];
  one.payload = what->payloadType == NVTX_PAYLOAD_TYPE_INT64 ? what->payload.llValue : -1;
  return 0;
}
int Pop(nvtxDomainHandle_t domain) {
  Add(domain, Announced::Kind::pop);
  return 0;
}

std::uint64_t Number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

nvtxMemHeapHandle_t RegisterHeap(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t* heap) {
  const auto* range = static_cast<const nvtxMemVirtualRangeDesc_t*>(heap->typeSpecificDesc);
  Announced& one = Add(domain, Announced::Kind::heap);
  one.address = Number(range->ptr);
  one.bytes = static_cast<std::int64_t>(range->size);
  log.other_heaps += heap->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR ? 0 : 1;
  return reinterpret_cast<nvtxMemHeapHandle_t>(one.address);
}
void UnregisterHeap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
  Add(domain, Announced::Kind::heap_gone).address = Number(heap);
}
void RegisterRegions(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t* batch) {
  const auto* ranges = static_cast<const nvtxMemVirtualRangeDesc_t*>(batch->regionDescElements);
  for (std::size_t i = 0; i < batch->regionCount; ++i) {
    Announced& one = Add(domain, Announced::Kind::region);
    one.address = Number(ranges[i].ptr);
    one.bytes = static_cast<std::int64_t>(ranges[i].size);
    one.heap_base = Number(batch->heap);
  }
}
void UnregisterRegions(nvtxDomainHandle_t domain, const nvtxMemRegionsUnregisterBatch_t* batch) {
  for (std::size_t i = 0; i < batch->refCount; ++i) {
    Add(domain, Announced::Kind::region_gone).address = Number(batch->refElements[i].pointer);
  }
}
void NameRegions(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t* batch) {
  for (std::size_t i = 0; i < batch->regionCount; ++i) {
    const nvtxMemRegionNameDesc_t& named = batch->regionElements[i];
    Announced& one = Add(domain, Announced::Kind::region_name);
    one.address = Number(named.region.pointer);
    one.name = named.nameType == NVTX_MESSAGE_TYPE_ASCII ? named.name.ascii : "";
  }
}

template <class Function>
void Serve(NvtxFunctionTable table, NvtxCallbackIdCore2 call, Function* function) {
  *table[call] = reinterpret_cast<NvtxFunctionPointer>(function);
}

template <class Function>
void Serve(const nvtxExtModuleSegment_t& segment, std::size_t call, Function* function) {
  segment.functionSlots[call] = reinterpret_cast<std::intptr_t>(function);
}

}  // namespace
}  // namespace tidemark

extern "C" {  // the type of one's argument is hidden in NVTX's headers, and it would be with that

tidemark::NvtxToolLog* TidemarkNvtxLog() { return &tidemark::log; }

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  using namespace tidemark;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
    return 0;
  }
  Serve(table, NVTX_CBID_CORE2_DomainCreateA, &CreateDomain);
  Serve(table, NVTX_CBID_CORE2_DomainDestroy, &DestroyDomain);
  Serve(table, NVTX_CBID_CORE2_DomainRegisterStringA, &RegisterString);
  Serve(table, NVTX_CBID_CORE2_DomainNameCategoryA, &NameCategory);
  Serve(table, NVTX_CBID_CORE2_DomainRangePushEx, &Push);
  Serve(table, NVTX_CBID_CORE2_DomainRangePop, &Pop);
  return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  using namespace tidemark;
  if (module->moduleId != NVTX_EXT_MODULEID_MEM || module->compatId != NVTX_EXT_COMPATID_MEM) {
    return 0;
  }
  Serve(module->segments[0], NVTX3EXT_CBID_nvtxMemHeapRegister, &RegisterHeap);
  Serve(module->segments[0], NVTX3EXT_CBID_nvtxMemHeapUnregister, &UnregisterHeap);
  Serve(module->segments[0], NVTX3EXT_CBID_nvtxMemRegionsRegister, &RegisterRegions);
  Serve(module->segments[0], NVTX3EXT_CBID_nvtxMemRegionsUnregister, &UnregisterRegions);
  Serve(module->segments[0], NVTX3EXT_CBID_nvtxMemRegionsName, &NameRegions);
  return 1;
}

}  // extern "C"
